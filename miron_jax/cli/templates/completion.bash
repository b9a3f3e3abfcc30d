# {howto}
_miron_jax() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} flag= words=
  if [[ $word == = ]]; then flag=$before word=
  elif [[ $before == = ]]; then flag=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  if [[ $COMP_CWORD == 1 ]]; then words="{commands}"
  elif [[ ${{COMP_WORDS[1]}} == completion ]]; then words="bash zsh fish"
  elif [[ ${{COMP_WORDS[1]}} == init && $COMP_CWORD == 2 ]]; then words="task model"
  elif [[ -n $flag ]]; then
    case $flag in
{values}
    esac
  elif [[ $word == -* ]]; then
    case ${{COMP_WORDS[1]}} in
{flags}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ $words == --* || ${{#COMPREPLY[@]}} == 1 && ${{COMPREPLY[0]}} == *= ]]; then
    compopt -o nospace 2>/dev/null
  fi
}}
complete -o bashdefault -o default -F _miron_jax miron-jax
