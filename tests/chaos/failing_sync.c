/* Preloaded into a server: once the file that TEMPER_TEST_FAILING_SYNC names is there, the disk no longer syncs. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int sync_or_fail(long call, int fd) {
  const char* sign = getenv("TEMPER_TEST_FAILING_SYNC");
  if (sign && access(sign, F_OK) == 0) {
    errno = EIO;
    return -1;
  }
  return (int)syscall(call, fd);
}

int fsync(int fd) { return sync_or_fail(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_or_fail(SYS_fdatasync, fd); }
