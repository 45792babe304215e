#include "tests/storage/fault_vfs.h"

#include <signal.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace temper {
namespace {

constexpr size_t kSector = 512;
FaultVfs* current = nullptr;  // SQLite's functions carry no context

void Apply(std::string& content, int64_t offset, std::string_view bytes) {
  if (content.size() < offset + bytes.size()) content.resize(offset + bytes.size());
  content.replace(offset, bytes.size(), bytes);
}

}  // namespace

// What is known of a file. Changes that were not synced are in their order.
struct FaultVfs::File {
  struct Change {
    int64_t offset;  // of a write; the new size, of a truncation
    std::string bytes;
    bool truncates;
  };
  std::string durable;
  bool exists = false;  // surely, after a loss of power
  std::vector<Change> pending;
  int last_error = 0;

  // Those changes that chance lets through, and of writes only some sectors.
  static void ApplySome(std::string& content, const std::vector<Change>& changes, Rng& rng) {
    for (const Change& change : changes) {
      if (rng.Below(2) == 0) continue;
      if (change.truncates) {
        content.resize(std::min<size_t>(content.size(), change.offset));
        continue;
      }
      const bool torn = rng.Below(4) == 0;
      for (size_t at = 0; at < change.bytes.size(); at += kSector) {
        if (torn && rng.Below(2) == 0) continue;
        Apply(content, change.offset + at, std::string_view(change.bytes).substr(at, kSector));
      }
    }
  }
};

namespace {

// What SQLite calls a file: ours, with the real one behind it in memory.
struct Handle {
  sqlite3_file base;
  FaultVfs::File* file;
  sqlite3_file* below() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};
Handle* H(sqlite3_file* file) { return reinterpret_cast<Handle*>(file); }
sqlite3_file* Below(sqlite3_file* file) { return H(file)->below(); }

int Close(sqlite3_file* file) { return Below(file)->pMethods->xClose(Below(file)); }

int Read(sqlite3_file* file, void* bytes, int size, sqlite3_int64 offset) {
  if (const int code = current->Before(DiskCall::kRead, H(file)->file); code != SQLITE_OK) return code;
  return Below(file)->pMethods->xRead(Below(file), bytes, size, offset);
}

int Write(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 offset) {
  const int code = current->Before(DiskCall::kWrite, H(file)->file);
  const int written = code == SQLITE_OK ? size : size / 2;
  const int real = Below(file)->pMethods->xWrite(Below(file), bytes, written, offset);
  current->Wrote(*H(file)->file, offset, std::string(static_cast<const char*>(bytes), written));
  return code != SQLITE_OK ? code : real;
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  if (const int code = current->Before(DiskCall::kTruncate, H(file)->file); code != SQLITE_OK) return code;
  current->Truncated(*H(file)->file, size);
  return Below(file)->pMethods->xTruncate(Below(file), size);
}

// The real file is not synced: tests do not lose the power of this machine.
int Sync(sqlite3_file* file, int) {
  const int code = current->Before(DiskCall::kSync, H(file)->file);
  current->Synced(*H(file)->file, code != SQLITE_OK);
  return code;
}

int FileSize(sqlite3_file* file, sqlite3_int64* size) { return Below(file)->pMethods->xFileSize(Below(file), size); }
int Lock(sqlite3_file* file, int level) { return Below(file)->pMethods->xLock(Below(file), level); }
int Unlock(sqlite3_file* file, int level) { return Below(file)->pMethods->xUnlock(Below(file), level); }
int CheckReservedLock(sqlite3_file* file, int* out) {
  return Below(file)->pMethods->xCheckReservedLock(Below(file), out);
}

int FileControl(sqlite3_file* file, int what, void* value) {
  if (what == SQLITE_FCNTL_LAST_ERRNO && H(file)->file->last_error != 0) {
    *static_cast<int*>(value) = H(file)->file->last_error;
    return SQLITE_OK;
  }
  return Below(file)->pMethods->xFileControl(Below(file), what, value);
}

int SectorSize(sqlite3_file* file) { return Below(file)->pMethods->xSectorSize(Below(file)); }
int Characteristics(sqlite3_file* file) { return Below(file)->pMethods->xDeviceCharacteristics(Below(file)); }
int ShmMap(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
  return Below(file)->pMethods->xShmMap(Below(file), page, size, extend, out);
}
int ShmLock(sqlite3_file* file, int offset, int n, int flags) {
  return Below(file)->pMethods->xShmLock(Below(file), offset, n, flags);
}
void ShmBarrier(sqlite3_file* file) { Below(file)->pMethods->xShmBarrier(Below(file)); }
int ShmUnmap(sqlite3_file* file, int remove) { return Below(file)->pMethods->xShmUnmap(Below(file), remove); }

constexpr sqlite3_io_methods kMethods = {.iVersion = 2,
                                         .xClose = Close,
                                         .xRead = Read,
                                         .xWrite = Write,
                                         .xTruncate = Truncate,
                                         .xSync = Sync,
                                         .xFileSize = FileSize,
                                         .xLock = Lock,
                                         .xUnlock = Unlock,
                                         .xCheckReservedLock = CheckReservedLock,
                                         .xFileControl = FileControl,
                                         .xSectorSize = SectorSize,
                                         .xDeviceCharacteristics = Characteristics,
                                         .xShmMap = ShmMap,
                                         .xShmLock = ShmLock,
                                         .xShmBarrier = ShmBarrier,
                                         .xShmUnmap = ShmUnmap};

int Open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
  const bool created = name != nullptr && (flags & SQLITE_OPEN_CREATE) != 0 && access(name, F_OK) != 0;
  file->pMethods = nullptr;
  const int code = current->below()->xOpen(current->below(), name, Below(file), flags, out);
  if (code != SQLITE_OK) return code;
  H(file)->file = current->Find(name == nullptr ? "" : name, created);  // without a name: a temporary one
  file->pMethods = &kMethods;
  return SQLITE_OK;
}

int Delete(sqlite3_vfs*, const char* name, int sync_folder) {
  if (const int code = current->Before(DiskCall::kDelete, nullptr); code != SQLITE_OK) return code;
  current->Deleted(name, sync_folder != 0);
  return current->below()->xDelete(current->below(), name, sync_folder);
}

}  // namespace

FaultVfs::FaultVfs(uint64_t seed)
    : below_(sqlite3_vfs_find(nullptr)), vfs_(std::make_unique<sqlite3_vfs>(*below_)), rng_(seed) {
  vfs_->zName = "fault";
  vfs_->szOsFile += sizeof(Handle);
  vfs_->xOpen = Open;
  vfs_->xDelete = Delete;
  current = this;
  sqlite3_vfs_register(vfs_.get(), /*makeDflt=*/1);
}

FaultVfs::~FaultVfs() {
  sqlite3_vfs_unregister(vfs_.get());
  sqlite3_vfs_register(below_, /*makeDflt=*/1);
  current = nullptr;
}

FaultVfs::File* FaultVfs::Find(const std::string& path, bool created) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<File>& file = files_[path];
  if (file == nullptr) file = std::make_unique<File>();
  if (!created && !file->exists && file->pending.empty() && !path.empty()) {  // from before our time
    std::ifstream in(path, std::ios::binary);
    file->durable.assign(std::istreambuf_iterator<char>(in), {});
    file->exists = true;
  }
  return file.get();
}

int FaultVfs::Before(DiskCall call, File* file) {
  std::lock_guard lock(mutex_);
  if (call != DiskCall::kRead) {
    ++changes_;
    if (changes_ == kill_at_) kill(getpid(), SIGKILL);
    if (power_every_ > 0 && rng_.Below(power_every_) == 0) tell_(LosePowerLocked());
  }
  if (!fault_.has_value() || fault_->call != call || --fault_->left >= 0) return SQLITE_OK;
  if (fault_->left < -fault_->lasting) return SQLITE_OK;
  failed_ = true;
  errno = fault_->system_error;
  if (file != nullptr) file->last_error = errno;
  switch (call) {
    case DiskCall::kWrite:
      return errno == ENOSPC ? SQLITE_FULL : SQLITE_IOERR_WRITE;
    case DiskCall::kSync:
      return SQLITE_IOERR_FSYNC;
    case DiskCall::kTruncate:
      return SQLITE_IOERR_TRUNCATE;
    case DiskCall::kDelete:
      return SQLITE_IOERR_DELETE;
    case DiskCall::kRead:
      return SQLITE_IOERR_READ;
  }
  return SQLITE_IOERR;
}

void FaultVfs::Wrote(File& file, int64_t offset, std::string bytes) {
  std::lock_guard lock(mutex_);
  file.pending.push_back({offset, std::move(bytes), false});
}

void FaultVfs::Truncated(File& file, int64_t size) {
  std::lock_guard lock(mutex_);
  file.pending.push_back({size, "", true});
}

void FaultVfs::Synced(File& file, bool failed) {
  std::lock_guard lock(mutex_);
  if (failed) {
    File::ApplySome(file.durable, file.pending, rng_);
    file.pending.clear();
    return;
  }
  for (const File::Change& change : file.pending) {
    if (change.truncates)
      file.durable.resize(std::min<size_t>(file.durable.size(), change.offset));
    else
      Apply(file.durable, change.offset, change.bytes);
  }
  file.pending.clear();
  file.exists = true;
}

// A deletion that was not synced may or may not have reached the disk; here chance says so at once.
void FaultVfs::Deleted(const std::string& path, bool synced) {
  std::lock_guard lock(mutex_);
  const auto found = files_.find(path);
  if (found == files_.end()) return;
  found->second->pending.clear();
  if (synced || rng_.Below(2) == 0) {
    found->second->durable.clear();
    found->second->exists = false;
  }
}

FaultVfs::Image FaultVfs::LosePower() {
  std::lock_guard lock(mutex_);
  return LosePowerLocked();
}

FaultVfs::Image FaultVfs::LosePowerLocked() {
  Image image;
  for (const auto& [path, file] : files_) {
    if (path.empty() || (!file->exists && (file->pending.empty() || rng_.Below(2) == 0))) continue;
    std::string& content = image[path.substr(path.rfind('/') + 1)] = file->durable;
    File::ApplySome(content, file->pending, rng_);
  }
  return image;
}

void FaultVfs::LosePowerNowAndThen(int64_t every, std::function<void(Image)> tell) {
  std::lock_guard lock(mutex_);
  power_every_ = every;
  tell_ = std::move(tell);
}

void FaultVfs::Fail(DiskCall call, int64_t nth, int system_error, int64_t lasting) {
  std::lock_guard lock(mutex_);
  fault_ = Fault{call, nth - 1, lasting, system_error};
  failed_ = false;
}

bool FaultVfs::Failed() const {
  std::lock_guard lock(mutex_);
  return failed_;
}

void FaultVfs::KillAt(int64_t nth) {
  std::lock_guard lock(mutex_);
  kill_at_ = changes_ + nth;
}

int64_t FaultVfs::Changes() const {
  std::lock_guard lock(mutex_);
  return changes_;
}

}  // namespace temper
