#include "compiler/codegen/package_programs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "include/temper/model.h"

namespace temper {
namespace {

constexpr size_t kMostPrograms = 512;  // of several packages: those used longest ago go first

thread_local std::string latest_error;

// What a package is told of it.
int32_t Told(const absl::Status& status) {
  latest_error = std::string(status.message());
  if (status.ok()) return TEMPER_OK;
  const bool not_ours =
      absl::IsNotFound(status) || absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
  return not_ours ? TEMPER_NO_PACKAGE : TEMPER_NO_RESOURCES;
}

// Packages hold memory by its address here.
driver::Memory& Held(void* memory) { return *static_cast<driver::Memory*>(memory); }

}  // namespace

const char* PackagePrograms::LatestError() { return latest_error.c_str(); }

absl::StatusOr<driver::Session*> PackagePrograms::TheSession() {
  if (session_ == nullptr) {
    TEMPER_ASSIGN_OR_RETURN(session_, open_());
  }
  return session_;
}

template <typename F>
absl::Status PackagePrograms::Ask(const F& f) {
  std::lock_guard lock(mutex_);
  TEMPER_ASSIGN_OR_RETURN(driver::Session * session, TheSession());
  return f(*session);
}

int32_t PackagePrograms::Launch(std::string_view code, std::string_view symbol, const temper_call* call) {
  return Told(Ask([&](driver::Session&) { return Run(code, symbol, *call); }));
}

template <typename F>
void* PackagePrograms::Make(const F& f) {
  driver::Memory* made = nullptr;
  Told(Ask([&](driver::Session& s) -> absl::Status {
    TEMPER_ASSIGN_OR_RETURN(driver::Memory memory, f(s));
    made = new driver::Memory(std::move(memory));
    return absl::OkStatus();
  }));
  return made;
}

void* PackagePrograms::Allocate(int64_t bytes) {
  return Make([&](driver::Session& s) { return s.Allocate(bytes); });
}

void* PackagePrograms::Part(void* memory, int64_t offset, int64_t bytes) {
  return Make([&](driver::Session& s) -> absl::StatusOr<driver::Memory> {
    if (offset % s.part_alignment() == 0) return s.Part(Held(memory), offset, bytes);
    return absl::UnimplementedError(
        absl::StrCat("the device divides its memory at multiples of ", s.part_alignment(), " bytes, not at ", offset));
  });
}

void PackagePrograms::Release(void* memory) {
  std::lock_guard lock(mutex_);
  delete &Held(memory);
}

int32_t PackagePrograms::Write(void* memory, int64_t offset, const void* from, int64_t bytes) {
  return Told(Ask([&](driver::Session& s) { return s.Write(Held(memory).get(), offset, from, bytes); }));
}

int32_t PackagePrograms::Read(void* memory, int64_t offset, void* to, int64_t bytes) {
  return Told(Ask([&](driver::Session& s) { return s.Read(Held(memory).get(), offset, to, bytes); }));
}

int32_t PackagePrograms::Copy(void* from, int64_t from_offset, void* to, int64_t to_offset, int64_t bytes) {
  return Told(
      Ask([&](driver::Session& s) { return s.Copy(Held(from).get(), from_offset, Held(to).get(), to_offset, bytes); }));
}

absl::StatusOr<driver::Session*> PackagePrograms::OpenSession() {
  driver::Session* session = nullptr;
  TEMPER_RETURN_IF_ERROR(Ask([&](driver::Session& s) {
    session = &s;
    return absl::OkStatus();
  }));
  return session;
}

void* PackagePrograms::Record(int32_t (*steps)(void*), void* closure) {
  driver::Recording* made = nullptr;
  const auto record = [&]() -> absl::Status {
    TEMPER_ASSIGN_OR_RETURN(driver::Session * session, OpenSession());
    TEMPER_ASSIGN_OR_RETURN(driver::Recording recording, session->Record([&] {
      return steps(closure) == TEMPER_OK ? absl::OkStatus() : absl::AbortedError("a step failed");
    }));
    made = new driver::Recording(std::move(recording));
    return absl::OkStatus();
  };
  Told(record());
  return made;
}

int32_t PackagePrograms::Time(int32_t (*steps)(void*), void* closure, int64_t* ns) {
  int32_t code = TEMPER_OK;  // of the steps, which told why
  const auto time = [&]() -> absl::Status {
    TEMPER_ASSIGN_OR_RETURN(driver::Session * session, OpenSession());
    TEMPER_ASSIGN_OR_RETURN(const double seconds, session->Time([&] {
      code = steps(closure);
      return code == TEMPER_OK ? absl::OkStatus() : absl::AbortedError(LatestError());
    }));
    *ns = static_cast<int64_t>(seconds * 1e9);
    return absl::OkStatus();
  };
  const int32_t told = Told(time());
  return code == TEMPER_OK ? told : code;
}

int32_t PackagePrograms::Replay(void* recording) {
  return Told(Ask([&](driver::Session& s) { return s.Replay(*static_cast<driver::Recording*>(recording)); }));
}

void PackagePrograms::Forget(void* recording) {
  std::lock_guard lock(mutex_);
  delete static_cast<driver::Recording*>(recording);
}

absl::Status PackagePrograms::Run(std::string_view code, std::string_view symbol, const temper_call& call) {
  TEMPER_ASSIGN_OR_RETURN(Entry * program, Find(code));
  const auto kernel = program->kernels.find(symbol);
  if (kernel == program->kernels.end()) return absl::NotFoundError("the code has no such kernel");
  return Submit(kernel->second, call);
}

absl::StatusOr<PackagePrograms::Entry*> PackagePrograms::Find(std::string_view code) {
  auto found = programs_.find(code);
  if (found == programs_.end()) {
    TEMPER_ASSIGN_OR_RETURN(Entry loaded, Load(code));
    if (programs_.size() >= kMostPrograms) {
      TEMPER_RETURN_IF_ERROR(session_->Finish());  // it may still run
      programs_.erase(std::ranges::min_element(programs_, {}, [](const auto& p) { return p.second.used; }));
    }
    found = programs_.emplace(code, std::move(loaded)).first;
  }
  found->second.used = ++clock_;
  return &found->second;
}

absl::StatusOr<PackagePrograms::Entry> PackagePrograms::Load(std::string_view code) {
  TEMPER_ASSIGN_OR_RETURN(driver::Program program, read_(code));
  Entry entry;
  for (auto& [symbol, kernel] : program.kernels) {
    TEMPER_ASSIGN_OR_RETURN(driver::Loaded loaded, driver::Loaded::Make(*session_, program.code, std::move(kernel)));
    entry.kernels.emplace(symbol, std::move(loaded));
  }
  return entry;
}

absl::Status PackagePrograms::Submit(const driver::Loaded& loaded, const temper_call& call) {
  const driver::Kernel& kernel = loaded.kernel;
  std::vector<void*> handles;
  for (size_t i = 0; i < kernel.parameter_bytes.size(); ++i) handles.push_back(Held(call.args[i]).get());
  if (kernel.workspace_bytes > 0) handles.push_back(Held(call.workspace).get());
  return session_->Submit(std::ssize(kernel.launches), [&](int64_t launch) { return loaded.Call(launch, handles); });
}

}  // namespace temper
