// How many configs a test draws for each template.
#pragma once

#include <cstdlib>
#include <string>

namespace temper::conformance {

// `usual`, or as many as TEMPER_CONFIGS says, for bench/gpu/configs.py; then `many`, and more devices are looked at.
struct Draw {
  explicit Draw(size_t usual) {
    const char* given = std::getenv("TEMPER_CONFIGS");
    many = given != nullptr;
    configs = many ? std::stoul(given) : usual;
  }
  size_t configs;
  bool many;
};

}  // namespace temper::conformance
