// What each driver keeps of its devices: their sessions, and which of them packages run on. Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "compiler/driver/session.h"

namespace temper::driver {

// By device, each begun once. They are never closed: drivers have threads, and others may be at work on them when the
// process ends. So whoever has a Sessions never deletes it.
template <typename DriversSession>
class Sessions {
 public:
  // `begin` gives a StatusOr of a unique_ptr to a session that has begun.
  template <typename Begin>
  absl::StatusOr<DriversSession*> Get(int number, Begin begin) {
    std::lock_guard lock(mutex_);
    std::unique_ptr<DriversSession>& session = sessions_[number];
    if (session == nullptr) {
      TEMPER_ASSIGN_OR_RETURN(session, begin());
    }
    return session.get();
  }

 private:
  std::mutex mutex_;
  std::map<int, std::unique_ptr<DriversSession>> sessions_;
};

// Which device packages run on: the one that was set, else the one that the variable names, else the first.
class PackageDeviceChoice {
 public:
  explicit constexpr PackageDeviceChoice(const char* variable) : variable_(variable) {}
  int number() const;
  void Set(int number) { set_ = number; }

 private:
  const char* variable_;
  std::atomic<int> set_{-1};  // -1: what the environment says
};

}  // namespace temper::driver
