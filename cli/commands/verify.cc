// Whether a package is what a lock says.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/temporary_directory.h"
#include "cli/build.h"
#include "cli/command.h"
#include "compiler/package/manifest.h"
#include "lock/lock.h"

namespace temper {
namespace {

struct VerifyOptions {
  ModelOptions model;  // its path is empty where none was given
  std::string package, lock;
};

// What it reads of a package's manifest.
struct Manifest {
  std::string target, codegen_id, tools, lock, prefix;
  std::vector<std::pair<std::string, std::string>> files;  // name, hash
  std::vector<LockedKernel> kernels;
};

absl::StatusOr<Manifest> Read(const std::string& package) {
  TEMPER_ASSIGN_OR_RETURN(const nlohmann::json json, ReadManifest(package));
  try {
    Manifest m{json.at("target"), json.at("codegen_id"), json.at("tools"), json.at("lock"), json.at("prefix"), {}, {}};
    for (const auto& [name, hash] : json.at("files").items()) m.files.emplace_back(name, hash);
    for (const nlohmann::json& k : json.at("kernels")) {
      m.kernels.push_back({k.at("workload"), k.at("uses").get<int>(), k.at("template"),
                           k.at("template_version").get<int>(), k.at("config").get<std::string>()});
    }
    return m;
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(package, "/manifest.json is damaged: ", e.what()));
  }
}

absl::Status Differs(const VerifyOptions& o, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(o.package, " was not built from ", o.lock, ": ", what));
}

absl::Status CheckFiles(const VerifyOptions& o, const Manifest& manifest) {
  for (const auto& [name, hash] : manifest.files) {
    TEMPER_ASSIGN_OR_RETURN(const std::string found, HashOfFile(absl::StrCat(o.package, "/", name)));
    if (found != hash)
      return absl::FailedPreconditionError(
          absl::StrCat(o.package, "/", name, " was changed since the package was built"));
  }
  return absl::OkStatus();
}

absl::Status CheckPins(const VerifyOptions& o, const Manifest& manifest, const LockEntry& entry) {
  const LockPins& pins = entry.pins;
  if (manifest.lock.empty()) return Differs(o, "it was built without a lock");
  if (manifest.lock != entry.digest)
    return Differs(o, absl::StrCat("its lock's digest is ", manifest.lock, ", not ", entry.digest));
  if (manifest.codegen_id != pins.codegen_id || manifest.tools != pins.tools)
    return Differs(o, absl::StrCat("its code generator is ", manifest.codegen_id, ", ", manifest.tools));
  for (const LockedKernel& kernel : manifest.kernels) {
    const auto found = std::ranges::find(pins.kernels, kernel.workload, &LockedKernel::workload);
    if (found == pins.kernels.end()) return Differs(o, absl::StrCat("it has a kernel of its own, ", kernel.workload));
    if (found->template_name != kernel.template_name || found->template_version != kernel.template_version ||
        found->config != kernel.config) {
      return Differs(o, absl::StrCat("it chose ", kernel.template_name, " ", kernel.config, " for ", kernel.workload));
    }
  }
  return absl::OkStatus();
}

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Builds it again, and compares all bytes.
absl::Status CheckBytes(const VerifyOptions& o, const Manifest& manifest) {
  TEMPER_ASSIGN_OR_RETURN(const TemporaryDirectory temporary, TemporaryDirectory::Make());
  const std::string again = temporary.path() + "/package";
  RecordOptions records;
  records.target = manifest.target;
  const BuildOptions build{.prefix = manifest.prefix, .lock = o.lock};
  TEMPER_RETURN_IF_ERROR(BuildPackage(o.model, records, again, build).status());
  for (const auto& file : std::filesystem::directory_iterator(again)) {
    const std::string name = file.path().filename().string();
    if (Bytes(file.path().string()) != Bytes(absl::StrCat(o.package, "/", name)))
      return Differs(o, absl::StrCat("building ", o.model.path, " again makes another ", name));
  }
  return absl::OkStatus();
}

absl::Status Verify(const VerifyOptions& o) {
  TEMPER_ASSIGN_OR_RETURN(const Manifest manifest, Read(o.package));
  TEMPER_ASSIGN_OR_RETURN(const Lock lock, ReadLock(o.lock));
  TEMPER_ASSIGN_OR_RETURN(const LockEntry* entry, FindEntry(lock, manifest.target, ""));
  TEMPER_RETURN_IF_ERROR(CheckWhole(lock, *entry));
  TEMPER_RETURN_IF_ERROR(CheckFiles(o, manifest));
  TEMPER_RETURN_IF_ERROR(CheckPins(o, manifest, *entry));
  if (!o.model.path.empty()) TEMPER_RETURN_IF_ERROR(CheckBytes(o, manifest));
  std::printf("%s: %zu kernels as %s pins them%s\n", o.package.c_str(), manifest.kernels.size(), o.lock.c_str(),
              o.model.path.empty() ? "; give --model to build it again and compare all bytes"
                                   : absl::StrCat(", and every byte as ", o.model.path, " gives it").c_str());
  return absl::OkStatus();
}

}  // namespace

void AddVerify(CLI::App& app, Action* action) {
  auto o = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand("verify", "check that a package was built from a lock");
  command->add_option("package", o->package, "a package's directory")->required();
  command->add_option("--lock", o->lock, "the lock file")->required();
  command->add_option("--model", o->model.path, "MODEL.onnx: build it again, and compare all bytes");
  command->footer("Example:\n  temper verify resnet50.temper --lock resnet50.lock --model resnet50.onnx");
  command->callback([o, action] { *action = [o] { return Verify(*o); }; });
}

}  // namespace temper
