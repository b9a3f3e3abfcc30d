#!/usr/bin/env bash
# The same command on every host of a TPU slice:  tpu_pod.sh NAME ZONE [more flags of miron-jax eval]
# Run it again after a preemption: what is scored is not scored again.
set -euo pipefail
name=${1:?name of the TPU VM} zone=${2:?its zone}
shift 2
gcloud compute tpus tpu-vm scp "$(dirname "$0")/tpu_pod.flags" "$name": --zone="$zone" --worker=all
gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all \
  --command="$(printf '%q ' miron-jax eval --flagfile=tpu_pod.flags "$@")"
