// What a template leaves open. A ConfigSpace is a product of knobs cut by constraints; a Config is one point of it.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "base/status.h"

namespace temper {

// A point, as knob names and values in the space's order. Self-contained: it is what records and leases carry.
class Config {
 public:
  Config() = default;
  explicit Config(std::vector<std::pair<std::string, int64_t>> values) : values_(std::move(values)) {}
  int64_t operator[](std::string_view knob) const;  // aborts if absent: templates ask only for their own knobs
  bool Has(std::string_view knob) const;
  const std::vector<std::pair<std::string, int64_t>>& values() const;
  bool operator==(const Config&) const = default;

 private:
  friend class ConfigSpace;
  // Who asks for knobs may be watched: of those that were asked for, the last one's place. Whoever copies or compares a
  // config asks for all, and nobody watches a copy.
  struct Watch {
    size_t* last_asked = nullptr;
    Watch() = default;
    Watch(const Watch& other) { other.AskedForAll(); }
    Watch& operator=(const Watch& other) {
      other.AskedForAll();
      return *this;
    }
    bool operator==(const Watch& other) const {
      AskedForAll();
      other.AskedForAll();
      return true;
    }
    void AskedForAll() const {
      if (last_asked != nullptr) *last_asked = std::numeric_limits<size_t>::max();
    }
  };
  const std::pair<std::string, int64_t>* Find(std::string_view knob) const;

  Watch watch_;  // before the values, so that it is compared in any case
  std::vector<std::pair<std::string, int64_t>> values_;
};
std::string Text(const Config& c);  // "mr=14,nr=32,kb=256"; "" is the empty config
absl::StatusOr<Config> ParseConfig(std::string_view text);

struct Knob {
  std::string name;
  std::vector<int64_t> values;  // distinct, at least one
};

class ConfigSpace {
 public:
  void Add(std::string name, std::vector<int64_t> values);
  // `why` is shown when a config is refused: "register tile needs more than 32 registers".
  void Require(std::string why, std::function<bool(const Config&)> holds);

  const std::vector<Knob>& knobs() const { return knobs_; }
  int64_t product_size() const;  // before constraints
  // Position in the product <-> config (mixed radix, the first knob slowest).
  Config At(int64_t index) const;
  absl::StatusOr<int64_t> IndexOf(const Config& c) const;  // error: an unknown knob or value
  bool Allows(const Config& c) const;                      // every constraint holds; of a config of this space
  absl::Status Check(const Config& c) const;  // knows every knob and satisfies every constraint, or says why not
  // All legal configs when the product is at most `limit`, else a seeded sample of about `limit` distinct legal ones.
  std::vector<Config> Enumerate(int64_t limit, uint64_t seed = 0) const;
  // Legal configs and, for the others, how many each constraint refused (the first that did).
  struct Size {
    int64_t legal;
    std::vector<std::pair<std::string, int64_t>> refused;
  };
  Size Count(int64_t limit = 1 << 20) const;  // scaled from a sample past the limit

 private:
  std::vector<Config> All() const;

  struct Constraint {
    std::string why;
    std::function<bool(const Config&)> holds;
  };
  std::vector<Knob> knobs_;
  std::vector<Constraint> constraints_;
};

}  // namespace temper
