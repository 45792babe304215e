#include "proto/tls_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <spdlog/spdlog.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "security/certificate.h"
#include "security/files.h"

namespace temper {
namespace {

constexpr unsigned kGrpcLooksAgainSeconds = 1;

absl::Status Checked(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

std::string PathOf(const temper::Descriptor& file) { return absl::StrCat("/proc/self/fd/", file.get()); }

// Puts another file in the place of the one in memory, at once and whole, under the same number. gRPC reads the file of
// the key and the certificate twice and takes the two for one another's where the time of the last change is the same:
// `second` is that time.
absl::Status PutInMemory(const std::string& text, int second, temper::Descriptor& place) {
  temper::Descriptor next(memfd_create("temper-tls", MFD_CLOEXEC));
  const timespec time{second, 0}, times[2] = {time, time};
  const bool written = next.valid() &&
                       write(next.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       futimens(next.get(), times) == 0;
  if (!written || (place.valid() && dup3(next.get(), place.get(), O_CLOEXEC) < 0))
    return absl::UnavailableError(absl::ErrnoToStatus(errno, "cannot keep TLS's files in memory").message());
  if (!place.valid()) place = std::move(next);
  if (access(PathOf(place).c_str(), R_OK) != 0)
    return absl::UnavailableError(absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", PathOf(place))).message());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files) {
  TlsTexts texts;
  TEMPER_ASSIGN_OR_RETURN(texts.authority, ReadSmallFile(files.authority, Secrecy::kPublic));
  TEMPER_RETURN_IF_ERROR(Checked(files.authority, ReadCertificate(texts.authority).status()));
  if (files.certificate.empty()) return texts;
  TEMPER_ASSIGN_OR_RETURN(texts.certificate, ReadSmallFile(files.certificate, Secrecy::kPublic));
  TEMPER_ASSIGN_OR_RETURN(texts.key, ReadSmallFile(files.key, Secrecy::kPrivate));
  TEMPER_RETURN_IF_ERROR(Checked(files.certificate, ReadCertificate(texts.certificate).status()));
  TEMPER_RETURN_IF_ERROR(Checked(files.key, CheckKeyOf(texts.certificate, texts.key)));
  return texts;
}

absl::StatusOr<std::unique_ptr<TlsWatch>> TlsWatch::Make(const TlsFiles& files) {
  std::unique_ptr<TlsWatch> watch(new TlsWatch(files));
  TEMPER_ASSIGN_OR_RETURN(const TlsTexts texts, ReadTlsFiles(files));
  TEMPER_RETURN_IF_ERROR(watch->TakeUp(texts));
  return watch;
}

absl::Status TlsWatch::TakeUp(const TlsTexts& texts) {
  ++taken_;
  TEMPER_RETURN_IF_ERROR(PutInMemory(texts.authority, taken_, authority_));
  if (!files_.certificate.empty())
    TEMPER_RETURN_IF_ERROR(PutInMemory(absl::StrCat(texts.key, "\n", texts.certificate), taken_, identity_));
  held_ = texts;
  return absl::OkStatus();
}

void TlsWatch::LookAgain() {
  const absl::StatusOr<TlsTexts> texts = ReadTlsFiles(files_);
  if (texts.ok() && *texts == held_) {
    told_.clear();
    return;
  }
  const absl::Status status = texts.ok() ? TakeUp(*texts) : texts.status();
  if (!status.ok()) {
    if (std::string why(status.message()); std::exchange(told_, why) != why)
      spdlog::warn("{}; what these files held before stays in use", why);
    return;
  }
  told_.clear();
  spdlog::info("took up what is new in {}", files_.certificate.empty() ? files_.authority : files_.certificate);
}

std::shared_ptr<grpc::experimental::CertificateProviderInterface> TlsWatch::Provider() const {
  const std::string identity = identity_.valid() ? PathOf(identity_) : "";
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(identity, identity, PathOf(authority_),
                                                                              kGrpcLooksAgainSeconds);
}

}  // namespace temper
