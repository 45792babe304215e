#include "measure_worker/sandbox/syscall_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace temper::worker {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kMachine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kMachine = AUDIT_ARCH_AARCH64;
#else
#error "the system call filter knows neither this machine's name nor its calls"
#endif

// The newest that this file knows: set_mempolicy_home_node, of Linux 5.17. Both machines number later ones alike.
constexpr uint32_t kNewestCall = 450;

constexpr long kRefused[] = {
    // Networks, and programs on this machine that listen. See also LimitSockets and RefuseListening.
    SYS_accept,
    SYS_accept4,
    // Other processes.
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_kcmp,
    SYS_migrate_pages,
    SYS_move_pages,
    SYS_tkill,
    SYS_setpriority,
    SYS_ioprio_set,
    // Out of the group that is killed with it.
    SYS_setsid,
    SYS_setpgid,
    // Other views of the machine.
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_move_mount,
    SYS_open_tree,
    SYS_unshare,
    SYS_setns,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
#ifdef SYS_mount_setattr
    SYS_mount_setattr,
#endif
    // What Landlock does not ask about.
    SYS_truncate,
    SYS_fchmodat,
    SYS_fchownat,
    SYS_utimensat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
#ifdef SYS_chmod
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
#endif
    // What outlives it, and what others left.
    SYS_shmget,
    SYS_shmat,
    SYS_shmctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_semctl,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
    SYS_mq_open,
    SYS_mq_unlink,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    // Parts of the kernel that have let too many out.
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_fanotify_init,
    SYS_vhangup,
    SYS_personality,
#ifdef SYS_modify_ldt
    SYS_modify_ldt,
#endif
    // The machine's own settings.
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    SYS_syslog,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
#endif
};

constexpr size_t kNumber = offsetof(seccomp_data, nr), kArch = offsetof(seccomp_data, arch);
// Their low halves: both machines are little-endian.
constexpr size_t kFirstArgument = offsetof(seccomp_data, args), kSecondArgument = kFirstArgument + sizeof(uint64_t);

constexpr uint32_t kNewNamespaces =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

sock_filter Statement(uint16_t code, uint32_t k) { return {code, 0, 0, k}; }
sock_filter Jump(uint16_t test, uint32_t k, uint8_t if_true, uint8_t if_false) {
  return {static_cast<uint16_t>(BPF_JMP | test | BPF_K), if_true, if_false, k};
}
constexpr uint16_t kReturn = BPF_RET | BPF_K;

}  // namespace

SyscallFilter::SyscallFilter(pid_t self, bool may_fork, bool may_listen) {
  RefuseForeignMachines();
  RefuseNewCalls();
  RefuseCalls();
  LimitSockets();
  if (!may_listen) RefuseListening();
  LimitSignals(self);
  LimitOwners();
  LimitClones(may_fork);
  Add(Statement(kReturn, SECCOMP_RET_ALLOW));
}

void SyscallFilter::Add(sock_filter instruction) {
  if (size_ < kMost) program_[size_++] = instruction;
}

void SyscallFilter::Load(size_t offset) { Add(Statement(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset))); }

void SyscallFilter::Refuse(int error) { Add(Statement(kReturn, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error))); }

// Calls are numbered otherwise for programs of 32 bits.
void SyscallFilter::RefuseForeignMachines() {
  Load(kArch);
  Add(Jump(BPF_JEQ, kMachine, 1, 0));
  Add(Statement(kReturn, SECCOMP_RET_KILL_PROCESS));
  Load(kNumber);
}

// Nobody has looked at what they do: libraries go on without them, as on a kernel that has none. x32's calls have
// higher numbers still.
void SyscallFilter::RefuseNewCalls() {
  Add(Jump(BPF_JGT, kNewestCall, 0, 1));
  Refuse(ENOSYS);
}

void SyscallFilter::RefuseCalls() {
  for (const long call : kRefused) {
    Add(Jump(BPF_JEQ, static_cast<uint32_t>(call), 0, 1));
    Refuse(EPERM);
  }
  // Its flags lie in memory, where a filter can not look: libraries then call clone.
  Add(Jump(BPF_JEQ, SYS_clone3, 0, 1));
  Refuse(ENOSYS);
}

// NVIDIA's driver asks whether its MPS daemon listens, and does not start if it may not ask. So there are sockets of
// the one kind that sends nothing before it is connected, and nobody to connect to. Pairs are of the kinds that send to
// each other alone: datagrams would go to any address.
void SyscallFilter::LimitSockets() {
  constexpr uint32_t kKindOfSocket = 0xf;  // its other bits are flags
  struct Kinds {
    uint32_t call, one, other;
  };
  for (const Kinds& kinds :
       {Kinds{SYS_socket, SOCK_SEQPACKET, SOCK_SEQPACKET}, Kinds{SYS_socketpair, SOCK_SEQPACKET, SOCK_STREAM}}) {
    Add(Jump(BPF_JEQ, kinds.call, 0, 8));
    Load(kFirstArgument);
    Add(Jump(BPF_JEQ, AF_UNIX, 0, 5));
    Load(kSecondArgument);
    Add(Statement(BPF_ALU | BPF_AND | BPF_K, kKindOfSocket));
    Add(Jump(BPF_JEQ, kinds.one, 1, 0));
    Add(Jump(BPF_JEQ, kinds.other, 0, 1));
    Add(Statement(kReturn, SECCOMP_RET_ALLOW));
    Refuse(EPERM);
  }
  Add(Jump(BPF_JEQ, SYS_connect, 0, 1));
  Refuse(ENOENT);
}

// NVIDIA's driver opens a door for other processes that share its memory, and does not start if it may not. Nobody is
// let in: to accept is refused.
void SyscallFilter::RefuseListening() {
  for (const uint32_t call : {SYS_bind, SYS_listen}) {
    Add(Jump(BPF_JEQ, call, 0, 1));
    Refuse(EPERM);
  }
}

void SyscallFilter::LimitSignals(pid_t self) {
  for (const long call : {SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo}) {
    Add(Jump(BPF_JEQ, static_cast<uint32_t>(call), 0, 4));
    Load(kFirstArgument);
    Add(Jump(BPF_JEQ, static_cast<uint32_t>(self), 0, 1));
    Add(Statement(kReturn, SECCOMP_RET_ALLOW));
    Refuse(EPERM);
  }
  // The limits of others are theirs.
  Add(Jump(BPF_JEQ, SYS_prlimit64, 0, 4));
  Load(kFirstArgument);
  Add(Jump(BPF_JEQ, 0, 0, 1));
  Add(Statement(kReturn, SECCOMP_RET_ALLOW));
  Refuse(EPERM);
}

// A file's owner is sent a signal when there is something to read; who makes it the owner says which signal.
void SyscallFilter::LimitOwners() {
  struct Ways {
    uint32_t call, one, other;
  };
  for (const Ways& ways : {Ways{SYS_fcntl, F_SETOWN, F_SETOWN_EX}, Ways{SYS_ioctl, FIOSETOWN, SIOCSPGRP}}) {
    Add(Jump(BPF_JEQ, ways.call, 0, 5));
    Load(kSecondArgument);
    Add(Jump(BPF_JEQ, ways.one, 2, 0));
    Add(Jump(BPF_JEQ, ways.other, 1, 0));
    Add(Statement(kReturn, SECCOMP_RET_ALLOW));
    Refuse(EPERM);
  }
}

void SyscallFilter::LimitClones(bool may_fork) {
#ifdef SYS_fork
  if (!may_fork) {
    Add(Jump(BPF_JEQ, SYS_fork, 1, 0));
    Add(Jump(BPF_JEQ, SYS_vfork, 0, 1));
    Refuse(EPERM);
  }
#endif
  Add(Jump(BPF_JEQ, SYS_clone, 0, 4));
  Load(kFirstArgument);
  Add(Jump(BPF_JSET, kNewNamespaces, 1, 0));
  Add(Jump(BPF_JSET, may_fork ? ~0u : CLONE_THREAD, 1, 0));
  Refuse(EPERM);
}

bool SyscallFilter::Install() const {
  if (size_ == kMost) {
    errno = E2BIG;
    return false;
  }
  const sock_fprog program{size_, const_cast<sock_filter*>(program_.data())};
  // Without this flag, older kernels slow all memory accesses of filtered processes down, which would be measured.
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0;
}

}  // namespace temper::worker
