// What ThreadSanitizer has to know of Debian's gRPC and Abseil, which are not instrumented: what their locks, queues
// and counts put in order. Without it each object that goes through gRPC from one thread to another looks like a race.
// Linked into all programs of a build under it; what is defined here goes before the libraries' own.
#include <dlfcn.h>
#include <grpcpp/support/server_callback.h>
#include <sanitizer/tsan_interface.h>

#include <cstdint>
#include <thread>

namespace {

template <typename F>
F* Next(F*, const char* symbol) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, symbol));
}

}  // namespace

// Begins the definition of what `symbol` names; NAME_next() is the library's, found at its first use.
#define TEMPER_BEFORE(result, name, symbol, ...)             \
  extern "C" result name(__VA_ARGS__) __asm__(symbol);       \
  static decltype(&name) name##_next() {                     \
    static decltype(&name) const next = Next(&name, symbol); \
    return next;                                             \
  }                                                          \
  result name(__VA_ARGS__)

// --- Abseil's locks: who has one comes after all who had it ---

TEMPER_BEFORE(void, MutexLock, "_ZN4absl7debian35Mutex4LockEv", void* mutex) {
  MutexLock_next()(mutex);
  __tsan_acquire(mutex);
}
TEMPER_BEFORE(bool, MutexTryLock, "_ZN4absl7debian35Mutex7TryLockEv", void* mutex) {
  const bool locked = MutexTryLock_next()(mutex);
  if (locked) __tsan_acquire(mutex);
  return locked;
}
TEMPER_BEFORE(void, MutexUnlock, "_ZN4absl7debian35Mutex6UnlockEv", void* mutex) {
  __tsan_release(mutex);
  MutexUnlock_next()(mutex);
}
TEMPER_BEFORE(void, CondVarWait, "_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE", void* condition, void* mutex) {
  __tsan_release(mutex);
  CondVarWait_next()(condition, mutex);
  __tsan_acquire(mutex);
}
// Their times are passed in two registers.
TEMPER_BEFORE(bool, CondVarWaitWithTimeout, "_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE",
              void* condition, void* mutex, int64_t high, int64_t low) {
  __tsan_release(mutex);
  const bool expired = CondVarWaitWithTimeout_next()(condition, mutex, high, low);
  __tsan_acquire(mutex);
  return expired;
}
TEMPER_BEFORE(bool, CondVarWaitWithDeadline, "_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE",
              void* condition, void* mutex, int64_t high, int64_t low) {
  __tsan_release(mutex);
  const bool expired = CondVarWaitWithDeadline_next()(condition, mutex, high, low);
  __tsan_acquire(mutex);
  return expired;
}

// --- gRPC's queues without locks: who takes a node comes after who put it there ---

TEMPER_BEFORE(bool, QueuePush, "_ZN9grpc_core32MultiProducerSingleConsumerQueue4PushEPNS0_4NodeE", void* queue,
              void* node) {
  __tsan_release(node);
  return QueuePush_next()(queue, node);
}
TEMPER_BEFORE(void*, QueuePop, "_ZN9grpc_core32MultiProducerSingleConsumerQueue14PopAndCheckEndEPb", void* queue,
              bool* empty) {
  void* const node = QueuePop_next()(queue, empty);
  if (node != nullptr) __tsan_acquire(node);
  return node;
}

// --- the end of a server: after the end of all its calls ---

TEMPER_BEFORE(void, ServerUnref, "_ZN4grpc6Server23UnrefWithPossibleNotifyEv", void* server) {
  __tsan_release(server);
  ServerUnref_next()(server);
}
TEMPER_BEFORE(void, ServerWait, "_ZN4grpc6Server4WaitEv", void* server) {
  ServerWait_next()(server);
  __tsan_acquire(server);
}

// --- the end of a call: after all that was done for it. As the library does it, on a thread of another ---

void grpc::internal::ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  __tsan_acquire(&callbacks_outstanding_);
  if (inline_ondone) return CallOnDone();
  std::thread([this] { CallOnDone(); }).detach();
}

void grpc::internal::ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  __tsan_acquire(&on_cancel_conditions_remaining_);
  if (reactor->InternalInlineable()) return reactor->OnCancel();
  Ref();
  std::thread([this, reactor] {
    reactor->OnCancel();
    MaybeDone();
  }).detach();
}
