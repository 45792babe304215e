#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "compiler/codegen/codegen.h"
#include "compiler/graph/alternatives.h"
#include "compiler/ops/legal_configs.h"
#include "compiler/target/threads.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

void AddRecordOptions(CLI::App* command, RecordOptions* options) {
  CLI::Option* db = command->add_option(
      "--db", options->db,
      "database of records (default, without --server and TEMPER_SERVER: TEMPER_DB, else the user's own)");
  command
      ->add_option("--server", options->server,
                   "tuning server HOST:PORT or unix:PATH (default, without --db: TEMPER_SERVER)")
      ->excludes(db);
  AddCredentialOptions(command, options);
  command->add_option("--device", options->device, "device key");
}

void AddThreadsOption(CLI::App* command, RecordOptions* options) {
  command
      ->add_option("--threads", options->threads,
                   "threads of the CPU that kernels are chosen for (default: the device's, or this machine's)")
      ->check(AboveZero());
}

void UseEnvironment(RecordOptions* options) {
  if (!options->db.empty() || !options->server.empty()) return;
  options->server = Environment("TEMPER_SERVER");
  if (options->server.empty()) options->db = Environment("TEMPER_DB");
}

std::string DatabasePath(const RecordOptions& options) {
  if (!options.db.empty()) return options.db;
  if (std::string path = Environment("TEMPER_DB"); !path.empty()) return path;
  std::string data = Environment("XDG_DATA_HOME");
  if (data.empty()) data = Environment("HOME") + "/.local/share";
  std::error_code ignored;  // opening the file says what is wrong
  fs::create_directories(data + "/temper", ignored);
  return data + "/temper/records.db";
}

absl::StatusOr<std::unique_ptr<Records>> Records::Open(const RecordOptions& options) {
  auto records = std::make_unique<Records>();
  records->options_ = options;
  if (options.untuned && options.device.empty()) return records;
  UseEnvironment(&records->options_);
  if (!records->options_.server.empty()) {
    TEMPER_ASSIGN_OR_RETURN(records->client_, ConnectTo<TunerClient>(records->options_));
    return records;
  }
  if (options.untuned) return records;
  const std::string path = DatabasePath(records->options_);
  if (!fs::exists(path) && records->options_.db.empty()) return records;
  TEMPER_ASSIGN_OR_RETURN(records->store_, OpenStore(path, OpenMode::kReadOnly));
  return records;
}

std::string TuneCommand(const ModelOptions& model, const RecordOptions& records) {
  std::string command = absl::StrCat("temper tune ", Quoted(model.path), ModelFlags(model));
  if (!records.db.empty()) absl::StrAppend(&command, " --db ", Quoted(records.db));
  if (!records.server.empty()) absl::StrAppend(&command, " --server ", Quoted(records.server));
  if (!records.device.empty()) absl::StrAppend(&command, " --device ", Quoted(records.device));
  if (!records.target.empty()) absl::StrAppend(&command, " --target ", Quoted(records.target));
  return command + " --time-budget 2m";
}

absl::StatusOr<std::string> TargetOfKey(TunerClient& client, const std::string& key, bool awaits, StopSignal* stop) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<v1::Device> devices, client.ListDevices(awaits ? key : "", stop));
  std::map<std::string, std::pair<int, int>> served;  // by target: devices at work, and all
  for (const v1::Device& device : devices) {
    if (device.key() != key) continue;
    auto& [working, all] = served[device.target()];
    working += device.state() != "lost" && device.state() != "drained" && device.state() != "pending" ? 1 : 0;
    ++all;
  }
  std::string text;
  std::pair<int, int> most;
  for (const auto& [target, devices_of_it] : served) {
    if (devices_of_it < most) continue;
    text = target;
    most = devices_of_it;
  }
  return text;
}

absl::StatusOr<Target> NamedTarget(const RecordOptions& options) {
  TEMPER_ASSIGN_OR_RETURN(Target target, ParseTarget(options.target));
  CpuTarget* cpu = target.cpu();
  if (cpu == nullptr) return target;
  const bool says = WithoutThreads(options.target) != options.target;
  if (says && options.threads > 0 && options.threads != cpu->threads) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target says -threads=", cpu->threads, " and --threads says ", options.threads, ": give one"));
  }
  if (options.threads > 0) {
    cpu->threads = options.threads;
  } else if (!says && target.generator == "llvm") {
    cpu->threads = HostTarget().threads();
  }
  return target;
}

absl::StatusOr<std::string> Records::TargetOfRecords() {
  std::string text;
  RecordFilter filter;
  filter.device_key = options_.device;
  if (client_ != nullptr) {
    int64_t newest = -1;
    TEMPER_RETURN_IF_ERROR(client_->ExportRecords(filter, /*best=*/true, [&](const Record& r) {
      if (r.id < newest) return true;
      newest = r.id;
      text = r.target;
      return true;
    }));
  } else if (store_ != nullptr) {
    filter.limit = 1;
    filter.newest_first = true;
    TEMPER_RETURN_IF_ERROR(store_->Scan(filter, [&](const Record& r) { text = r.target; }));
  }
  return text;
}

absl::StatusOr<Target> Records::ResolveTarget() {
  if (!options_.target.empty()) return NamedTarget(options_);
  std::string text;
  if (!options_.device.empty() && (client_ != nullptr || store_ != nullptr)) {
    if (client_ != nullptr) {
      TEMPER_ASSIGN_OR_RETURN(text, TargetOfKey(*client_, options_.device));
    }
    if (text.empty()) {
      TEMPER_ASSIGN_OR_RETURN(text, TargetOfRecords());
    }
    if (text.empty()) {
      return absl::NotFoundError(
          client_ != nullptr
              ? absl::StrCat("the server knows no device '", options_.device,
                             "' and has no record of one: see `temper devices`, or give --target")
              : absl::StrCat("the database has no record of device '", options_.device, "': give --target"));
    }
  }
  TEMPER_ASSIGN_OR_RETURN(Target target, ParseTarget(text.empty() ? "host" : text));
  if (options_.threads > 0 && target.cpu() != nullptr) target.cpu()->threads = options_.threads;
  return target;
}

absl::Status Records::ObeyVerdict(const std::string& model_hash, const Target& t) {
  verdict_.clear();
  verdict_job_ = 0;
  if (options_.untuned) return absl::OkStatus();
  if (store_ != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(const std::optional<JobRow> job,
                            store_->LatestVerdict(model_hash, Text(t), options_.device));
    if (job.has_value()) std::tie(verdict_, verdict_job_) = std::make_pair(job->build_with, job->id);
  } else if (client_ != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(const std::optional<TunerClient::Verdict> verdict,
                            client_->QueryVerdict(model_hash, Text(t), options_.device));
    if (verdict.has_value()) std::tie(verdict_, verdict_job_) = std::make_pair(verdict->build_with, verdict->job);
  }
  return absl::OkStatus();
}

BestQuery Records::QueryFor(const Workload& w, const Target& t) const {
  BestQuery query;
  query.workload = Text(w);
  query.anchor = AnchorText(w);
  query.target = Text(t);
  query.device_key = options_.device;
  query.threads = t.threads();
  for (const TemplateDef* def : TemplatesFor(w, t)) query.templates.emplace_back(std::string(def->name), def->version);
  return query;
}

absl::StatusOr<std::optional<BestAnswer>> Records::Best(const Workload& w, const Target& t) {
  return Ask(QueryFor(w, t));
}

absl::StatusOr<std::optional<BestAnswer>> Records::Ask(const BestQuery& query) {
  if (store_ != nullptr) return store_->Best(query);
  if (client_ == nullptr) return std::nullopt;
  TEMPER_ASSIGN_OR_RETURN(auto answers, client_->QueryBest(std::span(&query, 1)));
  return answers.at(0);
}

absl::Status Records::Scan(const std::function<void(const Record&)>& visit) {
  RecordFilter filter;
  filter.device_key = options_.device;
  if (store_ != nullptr) return store_->Scan(filter, visit);
  if (client_ == nullptr) return absl::OkStatus();
  return client_->ExportRecords(filter, /*best=*/false, [&](const Record& r) {
    visit(r);
    return true;
  });
}

absl::StatusOr<std::set<std::string>> Records::TargetsOf(const Workload& w) {
  std::set<std::string> targets;
  RecordFilter filter;
  filter.workload = Text(w);
  const auto visit = [&](const Record& r) {
    targets.insert(r.target);
    return true;
  };
  if (store_ != nullptr) TEMPER_RETURN_IF_ERROR(store_->ScanBest(filter, visit));
  if (client_ != nullptr) TEMPER_RETURN_IF_ERROR(client_->ExportRecords(filter, /*best=*/true, visit));
  return targets;
}

absl::StatusOr<KernelChoice> Records::Choose(const Workload& w, const Target& t) {
  TEMPER_ASSIGN_OR_RETURN(KernelChoice untuned, ChooseDefault(w, t));
  if (options_.untuned || verdict_ == "default") return untuned;
  BestQuery query = QueryFor(w, t);
  query.default_template = untuned.template_name;
  query.default_config = Text(untuned.config);
  TEMPER_ASSIGN_OR_RETURN(std::optional<BestAnswer> best, Ask(query));
  if (!best.has_value()) return untuned;
  const bool stale = best->record.codegen_id != CodegenId(t);
  const absl::StatusOr<Config> config = LegalConfigs(w, t).Read(best->record.template_name, best->record.config);
  if ((stale && options_.strict) || !config.ok()) return untuned;
  return KernelChoice{best->record.template_name,      *config, best->level,
                      std::to_string(best->record.id), stale,   MedianCost(best->record),
                      best->record.device_key};
}

absl::Status Records::TakeAlternatives(Graph& graph, const Target& t) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<bool> faster, FasterAlternatives(graph, t));
  temper::TakeAlternatives(graph, faster);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<bool>> Records::FasterAlternatives(const Graph& graph, const Target& t) {
  const auto seconds = [&](const Workload& w) -> absl::StatusOr<std::optional<double>> {
    TEMPER_ASSIGN_OR_RETURN(const KernelChoice choice, Choose(w, t));
    if (choice.seconds <= 0 || choice.level == "borrowed") return std::nullopt;
    return choice.seconds;
  };
  return temper::FasterAlternatives(graph, seconds);
}

}  // namespace temper
