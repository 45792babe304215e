// How many configs a test draws for each template, and of which templates.
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

// Whether configs of the template are drawn: of every one, or of those that TEMPER_TEMPLATES names between commas.
inline bool IsDrawn(const std::string& template_name) {
  const char* given = std::getenv("TEMPER_TEMPLATES");
  return given == nullptr || ("," + std::string(given) + ",").find("," + template_name + ",") != std::string::npos;
}

}  // namespace temper::conformance
