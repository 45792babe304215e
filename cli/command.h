// The `temper` command: one function per subcommand, each in a file of its own, listed in main.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/connect.h"
#include "client/tuner_client.h"
#include "compiler/graph/graph.h"
#include "compiler/package/package.h"
#include "storage/store.h"

namespace temper {

// What a subcommand does once its arguments are parsed. An error becomes one line on stderr and exit code 1.
using Action = std::function<absl::Status()>;
// Registers the subcommand; `*action` is set when it is the one that was called.
using AddCommand = void (*)(CLI::App& app, Action* action);

void AddTune(CLI::App& app, Action* action);
void AddCompile(CLI::App& app, Action* action);
void AddLock(CLI::App& app, Action* action);
void AddDiff(CLI::App& app, Action* action);
void AddVerify(CLI::App& app, Action* action);
void AddBench(CLI::App& app, Action* action);
void AddRun(CLI::App& app, Action* action);
void AddTasks(CLI::App& app, Action* action);
void AddExplain(CLI::App& app, Action* action);
void AddPretrain(CLI::App& app, Action* action);
void AddDb(CLI::App& app, Action* action);
void AddDevices(CLI::App& app, Action* action);
void AddJobs(CLI::App& app, Action* action);
void AddWatch(CLI::App& app, Action* action);
void AddCancel(CLI::App& app, Action* action);
void AddDevice(CLI::App& app, Action* action);
void AddToken(CLI::App& app, Action* action);
void AddAudit(CLI::App& app, Action* action);
void AddDrain(CLI::App& app, Action* action);
void AddUndrain(CLI::App& app, Action* action);
void AddPriority(CLI::App& app, Action* action);

inline constexpr std::string_view kLocalDevice = "local";  // the device key of runs without --device

// --- options that several commands share ---

// What a number given on the command line must be.
CLI::Validator AboveZero();
CLI::Validator ZeroOrMore();

// A share as people write it, "1%" or "0.01", from 0 to 1. kInvalidArgument names the option.
absl::StatusOr<double> ParseShare(const char* option, const std::string& text);

struct ModelOptions {
  std::string path;                 // MODEL.onnx, or a package's directory where a command takes one
  std::vector<std::string> shapes;  // NAME=1,3,224,224
  std::vector<std::string> dims;    // NAME=1, NAME=1..8; NAME=1,8 where a command takes several variants
  std::vector<std::string> values;  // NAME=true
  std::string winograd;             // "on", "off"; empty: nothing was said, which means on
  std::string tf32, bf16;           // "on", "off"; empty: nothing was said, which means off
  bool print_passes = false;
};
void AddModelOptions(CLI::App* command, ModelOptions* options, const char* what);
bool IsPackage(const std::string& path);
// The options of each variant: one for each combination of the lengths in `dims`. They are ordered by the dimensions'
// names, of which the last changes fastest, and by the lengths as they were said.
// kInvalidArgument: there are too many, or one twice.
struct ModelVariant {
  std::string name;  // "batch=1 seq=32", of the dimensions that have several lengths; empty: it is the only one
  ModelOptions options;
};
absl::StatusOr<std::vector<ModelVariant>> VariantsOf(const ModelOptions& options);
// The model as its file has it. kInvalidArgument: also where the options are of several variants.
absl::StatusOr<Graph> ImportModel(const ModelOptions& options);
// For the device that it is meant for, which has to be known by then.
absl::Status OptimizeModel(const ModelOptions& options, const Target& target, Graph& graph);
absl::StatusOr<Graph> LoadModel(const ModelOptions& options, const Target& target);  // both
// Such of the options as a command that is to be given again must have: " --shape x=1,3 --winograd off".
std::string ModelFlags(const ModelOptions& options);
std::string ModelName(const std::string& path);   // the file's name without folders and ending
std::string Quoted(const std::string& argument);  // as a shell takes it

struct RecordOptions : ConnectOptions {
  std::string db, device, target;
  int threads = 0;  // 0: nothing was said, which means the affinity mask's count
  bool untuned = false, strict = false;
};
void AddRecordOptions(CLI::App* command, RecordOptions* options);
// --threads, for commands that choose kernels and run none.
void AddThreadsOption(CLI::App* command, RecordOptions* options);
// Where neither --db nor --server is given: the server of TEMPER_SERVER, else the database of TEMPER_DB.
void UseEnvironment(RecordOptions* options);
// --db, else TEMPER_DB, else $XDG_DATA_HOME/temper/records.db (~/.local/share by default); its folder is made.
std::string DatabasePath(const RecordOptions& options);

// What --target names, with the threads of --threads or of the text itself. Where neither says how many, a CPU has as
// many as this machine gives to a tune here. kInvalidArgument: also where both say, and not the same.
absl::StatusOr<Target> NamedTarget(const RecordOptions& options);

// What tunes the model with the same choices. A job looks at every operator before it goes deeper into any.
std::string TuneCommand(const ModelOptions& model, const RecordOptions& records);

// The text of the target that most devices of the key have, those at work before others; empty: the server knows none.
// `awaits`: the caller waits for one, see TunerClient.
absl::StatusOr<std::string> TargetOfKey(TunerClient& client, const std::string& key, bool awaits = false,
                                        StopSignal* stop = nullptr);

// Where best configs come from: a database file, a server, or nothing.
class Records {
 public:
  // A database that does not exist is no error: there are no records then (unless --db named it).
  static absl::StatusOr<std::unique_ptr<Records>> Open(const RecordOptions& options);
  // What to compile for: --target, else the device's (from its workers or its newest record), else this machine.
  absl::StatusOr<Target> ResolveTarget();
  // Where the newest job that measured the model end to end kept its default, Choose gives defaults until another model
  // is asked for.
  absl::Status ObeyVerdict(const std::string& model_hash, const Target& t);
  const std::string& verdict() const { return verdict_; }  // "tuned", "default", or empty: none, or none was asked for
  int64_t verdict_job() const { return verdict_job_; }     // that job; 0: none
  // The best record for the workload, or its default. Records of another template version are passed over; those of
  // another codegen id are marked stale, or passed over under --strict.
  absl::StatusOr<KernelChoice> Choose(const Workload& w, const Target& t);
  // Takes the graph's alternatives that records of these very workloads say are faster, as Choose chooses them.
  absl::Status TakeAlternatives(Graph& graph, const Target& t);
  absl::StatusOr<std::vector<bool>> FasterAlternatives(const Graph& graph, const Target& t);  // which these are
  // The targets that the workload has successful records for, of any device.
  absl::StatusOr<std::set<std::string>> TargetsOf(const Workload& w);
  // What is fastest by the records, whatever it would be compared with.
  absl::StatusOr<std::optional<BestAnswer>> Best(const Workload& w, const Target& t);
  // All records, in id order; of --device where it is given.
  absl::Status Scan(const std::function<void(const Record&)>& visit);

 private:
  absl::StatusOr<std::string> TargetOfRecords();  // of the newest record of --device; empty: there is none
  BestQuery QueryFor(const Workload& w, const Target& t) const;
  absl::StatusOr<std::optional<BestAnswer>> Ask(const BestQuery& query);

  RecordOptions options_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<TunerClient> client_;
  std::string verdict_;
  int64_t verdict_job_ = 0;
};

// --- tensors and files ---
absl::StatusOr<NDArray> ReadTensorFile(const std::string& path);  // .npy or .pb (ONNX TensorProto)
absl::Status WriteNpy(const std::string& path, const NDArray& array);
// Normal floats; integers 0 or 1.
absl::StatusOr<NDArray> RandomInput(const LoadedPackage::Io& io, uint64_t seed);
std::string FileNameFor(const std::string& tensor);  // outside [A-Za-z0-9._-]: '_'

// Random inputs for a package, and room for its outputs.
class PackageBuffers {
 public:
  static absl::StatusOr<PackageBuffers> Make(const LoadedPackage& package);
  const void* const* in() const { return in_.data(); }
  void* const* out() const { return out_.data(); }

 private:
  std::vector<NDArray> arrays_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
};

struct Timing {
  double median_ms, mean_ms, min_ms, std_ms;
  int repeats;
};
// Runs the package on random inputs for about `seconds`, after a warm-up.
absl::StatusOr<Timing> TimePackage(LoadedPackage& package, double seconds);

}  // namespace temper
