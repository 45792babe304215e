// What the kernel answers to a process under the filter, call by call.
#include "measure_worker/sandbox/syscall_filter.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace temper::worker {
namespace {

constexpr int kNoFilter = 255;

// What `ask` returns there: a number of 8 bits.
template <typename F>
int UnderFilter(F ask, bool may_listen = false) {
  const pid_t pid = fork();
  if (pid == 0) {
    const bool filtered = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                          SyscallFilter(getpid(), /*may_fork=*/false, may_listen).Install();
    _exit(filtered ? ask() : kNoFilter);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : kNoFilter;
}

template <typename... Arguments>
int ErrorOf(long call, Arguments... arguments) {
  return syscall(call, arguments...) < 0 ? errno : 0;
}

TEST(SyscallFilter, SocketsAreOfKindsThatSendNothingToAnAddress) {
  struct Case {
    int family, kind, socket, pair;  // the errors
  };
  const Case cases[] = {
      {AF_UNIX, SOCK_SEQPACKET, 0, 0},         {AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0},
      {AF_UNIX, SOCK_STREAM, EPERM, 0},        {AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, EPERM, 0},
      {AF_UNIX, SOCK_DGRAM, EPERM, EPERM},     {AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, EPERM, EPERM},
      {AF_UNIX, SOCK_RAW, EPERM, EPERM},  // to the kernel it is the same as SOCK_DGRAM
      {AF_INET, SOCK_STREAM, EPERM, EPERM},    {AF_NETLINK, SOCK_RAW, EPERM, EPERM},
      {AF_TIPC, SOCK_SEQPACKET, EPERM, EPERM},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(UnderFilter([&] { return ErrorOf(SYS_socket, c.family, c.kind, 0); }), c.socket) << c.kind;
    EXPECT_EQ(UnderFilter([&] {
                int fds[2];
                return ErrorOf(SYS_socketpair, c.family, c.kind, 0, fds);
              }),
              c.pair)
        << c.family << " " << c.kind;
  }
}

// As NVIDIA's driver does when it starts: a name that is no file's.
TEST(SyscallFilter, DriversMayListenAndLetNobodyIn) {
  const auto listens = [] {
    const int fd = static_cast<int>(syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{AF_UNIX, {}};
    std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "temper-filter-test-%d", getpid());
    const int bound = ErrorOf(SYS_bind, fd, &address, sizeof address);
    return bound != 0 ? bound : ErrorOf(SYS_listen, fd, 1);
  };
  EXPECT_EQ(UnderFilter(listens, /*may_listen=*/true), 0);
  EXPECT_EQ(UnderFilter(listens), EPERM);
  EXPECT_EQ(UnderFilter([] { return ErrorOf(SYS_listen, 0, 1); }), EPERM);
  EXPECT_EQ(UnderFilter([] { return ErrorOf(SYS_accept4, 0, nullptr, nullptr, 0); }, /*may_listen=*/true), EPERM);
}

TEST(SyscallFilter, CallsThatAreNewerThanItsListAreNotThere) {
  // cachestat, fchmodat2, setxattrat, removexattrat, file_setattr, one that is to come, and x32's getpid.
  for (const long call : {451L, 452L, 463L, 466L, 469L, 600L, 0x40000027L})
    EXPECT_EQ(UnderFilter([&] { return ErrorOf(call, -1, nullptr, 0, nullptr, 0); }), ENOSYS) << call;
}

TEST(SyscallFilter, WhatOthersLeftInMemoryStays) {
  const int segment = shmget(IPC_PRIVATE, 4096, 0600);
  ASSERT_GE(segment, 0);
  EXPECT_EQ(UnderFilter([&] { return ErrorOf(SYS_shmctl, segment, IPC_RMID, nullptr); }), EPERM);
  shmid_ds found;
  EXPECT_EQ(shmctl(segment, IPC_STAT, &found), 0);
  shmctl(segment, IPC_RMID, nullptr);
}

}  // namespace
}  // namespace temper::worker
