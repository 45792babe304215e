// What a measuring child may not ask of the kernel: networks, other processes, the machine's own settings. Refused
// calls fail with EPERM, those to whoever listens with ENOENT, and those that are newer than the filter with ENOSYS.
// Everything that generating, loading and running code in threads takes is allowed.
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace temper::worker {

// Makes no library calls but system calls: for use between fork and exec.
class SyscallFilter {
 public:
  // For process `self`, the only one that it lets itself send signals to. `may_fork`: processes, not only threads.
  // `may_listen`: sockets may have names and listen, though they accept nobody, as drivers of GPUs want.
  SyscallFilter(pid_t self, bool may_fork, bool may_listen);
  // For this thread and all that it starts, for good. It has to have given up new privileges. errno tells why not.
  bool Install() const;

 private:
  void Add(sock_filter instruction);
  void Load(size_t offset);
  void Refuse(int error);
  void RefuseForeignMachines();
  void RefuseNewCalls();
  void RefuseCalls();
  void LimitSockets();
  void RefuseListening();
  void LimitSignals(pid_t self);
  void LimitOwners();
  void LimitClones(bool may_fork);

  static constexpr size_t kMost = 512;
  std::array<sock_filter, kMost> program_;
  uint16_t size_ = 0;
};

}  // namespace temper::worker
