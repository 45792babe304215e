// A device's lock as files that all workers of the machine share. Who waits goes before who just measured.
#pragma once

#include <string>
#include <vector>

#include "measure_worker/backend.h"

namespace temper::worker {

std::string LockDirectory();  // $XDG_RUNTIME_DIR, or the directory for temporary files

class PatientLock : public DeviceLock {
 public:
  // Two files in `directory` for each name, temper-NAME.turn and temper-NAME.lock. All who lock several names have
  // them in one order, so nobody waits for one who waits for him.
  PatientLock(const std::string& directory, const std::vector<std::string>& names);
  ~PatientLock() override;
  PatientLock(const PatientLock&) = delete;
  PatientLock& operator=(const PatientLock&) = delete;
  bool Acquire(const std::function<bool()>& give_up) override;
  void Release() override;

 private:
  struct Part {
    int turn = -1, busy = -1;  // -1: no lock file could be made; then it is not locked
  };
  static bool Acquire(const Part& part, const std::function<bool()>& give_up);
  static void Release(const Part& part);
  std::vector<Part> parts_;
};

}  // namespace temper::worker
