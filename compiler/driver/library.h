// Libraries that are loaded when they are asked for.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace temper::driver {

// What the loader is asked for: the file that the environment's `variable` names, or else the usual one.
inline std::string LibraryPath(const char* variable, const char* usual) {
  const char* told = std::getenv(variable);
  return told != nullptr && *told != '\0' ? told : usual;
}

// Whether the library has the function.
template <typename F>
bool Find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace temper::driver
