// A measuring child with the null backend: what the sandbox's tests start.
#include "measure_worker/backends/null/null_backend.h"
#include "measure_worker/sandbox/process.h"
#include "measure_worker/sandbox/session.h"

int main() {
  temper::worker::Backend backend = temper::worker::NewNullBackend();
  return temper::worker::ChildMain(temper::worker::kChildFd, backend);
}
