// Stands before a C++ program inside the box: what its function returns, as one line of JSON on descriptor 3.
//
// Numbers are numbers (a char and a bool too), text is a string of bytes, a container is a list, a pair is a list of two.
// `wanted` puts before a value how far a result may be from it: 1e-3 for float and double, 1e-4 for vectors of float and
// 1e-3 of double, as composer's judge has it; 0 for every other type, whose values must be equal.
#include <algorithm>
#include <map>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#include <unistd.h>
using namespace std;

namespace boxed {
typedef std::string Text;

template <class T> typename std::enable_if<std::is_integral<T>::value && std::is_signed<T>::value>::type put(Text& out, const T& value) {
  out += std::to_string((long long)value);
}
template <class T> typename std::enable_if<std::is_integral<T>::value && !std::is_signed<T>::value>::type put(Text& out, const T& value) {
  out += std::to_string((unsigned long long)value);
}
template <class T> typename std::enable_if<std::is_floating_point<T>::value>::type put(Text& out, const T& value) {
  char digits[64];
  snprintf(digits, sizeof digits, "%.21Lg", (long double)value);
  out += value != value ? "NaN" : value - value != 0 ? (value > 0 ? "Infinity" : "-Infinity") : digits;
}
inline void put(Text& out, const std::string& value) {
  out += '"';
  for (std::size_t i = 0; i < value.size(); ++i) {
    char code[8];
    snprintf(code, sizeof code, "\\u%04x", (unsigned)(unsigned char)value[i]);
    out += code;
  }
  out += '"';
}
template <class A, class B> void put(Text& out, const std::pair<A, B>& value);
template <class T> auto put(Text& out, const T& value) -> typename std::enable_if<(sizeof(value.begin()) > 0)>::type {
  out += '[';
  bool first = true;
  for (auto part = value.begin(); part != value.end(); ++part) {
    if (!first) out += ',';
    first = false;
    const typename T::value_type own = *part;
    put(out, own);
  }
  out += ']';
}
template <class A, class B> void put(Text& out, const std::pair<A, B>& value) {
  out += '[';
  put(out, value.first);
  out += ',';
  put(out, value.second);
  out += ']';
}

template <class T> struct Most { static const char* text() { return "0"; } };
template <> struct Most<float> { static const char* text() { return "0.001"; } };
template <> struct Most<double> { static const char* text() { return "0.001"; } };
template <> struct Most<std::vector<float> > { static const char* text() { return "0.0001"; } };
template <> struct Most<std::vector<double> > { static const char* text() { return "0.001"; } };

template <class T> struct Exactly { typedef T type; };
template <class T> void wanted(Text& out, const typename Exactly<T>::type& value) {
  out += Most<T>::text();
  out += ' ';
  put(out, value);
  out += '\n';
}

// Writes, and ends at once: what the program left for its end does not run.
inline void tell(const Text& out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::write(3, out.data() + done, out.size() - done);
    if (count <= 0) break;
    done += count;
  }
  ::_exit(done == out.size() ? 0 : 1);
}
}  // namespace boxed
