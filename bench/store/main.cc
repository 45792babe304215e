// How fast the store is when it is large.
//   bench_store FILE [--records N] [--jobs N] [--queries N]
// Fills FILE with what of so many records and jobs it does not hold yet, as a fleet would: jobs of 20 tasks, 2,000
// trials a task in batches of 16, a quarter of them failures, eight finals at the end. Then asks for best configs as
// builds do, lists the jobs, and writes alone and in groups.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <cstdio>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "storage/store.h"

namespace temper {
namespace {

constexpr int64_t kTasksAJob = 20, kTrialsATask = 2000, kBatch = 16, kFinals = 8;
constexpr int64_t kWorkloads = 1250, kEpilogues = 5, kDevices = 4;
constexpr size_t kFillChunk = 4096;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string Anchor(int64_t workload) {
  return absl::StrCat("(f32[1,", workload / kEpilogues,
                      ",56,56]@0231, const f32[64,64,3,3]) conv2d(0,1; group=1 "
                      "pads=[1,1,1,1] strides=[1,1]) -> f32[1,64,56,56]@0231");
}
std::string Workload(int64_t workload) {
  return absl::StrCat(Anchor(workload), "; epilogue", workload % kEpilogues, "(2) -> f32[1,64,56,56]@0231; anchor=0");
}
std::string Config(int64_t n) {
  return absl::StrCat("mr=6,nr=16,kc=", n, ",mc=", 7 * n % 512, ",nc=", 13 * n % 4096, ",order=nchw,pad=copy,unroll=4");
}

// The record that comes as the `index`th, from 0.
Record RecordAt(int64_t index) {
  const int64_t in_job = index % (kTasksAJob * kTrialsATask), job = index / (kTasksAJob * kTrialsATask);
  const int64_t task = (job * kTasksAJob + in_job / kBatch % kTasksAJob) % (kWorkloads * kDevices);
  const int64_t trial = in_job / (kBatch * kTasksAJob) * kBatch + in_job % kBatch;
  Rng rng(index);
  Record r;
  r.workload = Workload(task % kWorkloads);
  r.anchor = Anchor(task % kWorkloads);
  r.target = "llvm -mcpu=x86-64-v4 -threads=16";
  r.device_key = absl::StrCat("device", task / kWorkloads);
  r.fingerprint = absl::StrCat("CPU number ", task / kWorkloads, ", 16 cores");
  r.threads = 16;
  r.template_name = trial % 3 == 0 ? "conv2d.direct" : "conv2d.winograd";
  // Half of the jobs were cancelled before their finals.
  const bool final = trial >= kTrialsATask - kFinals && task / kWorkloads < kDevices / 2;
  r.config = Config(final ? trial % kFinals : trial);
  r.codegen_id = "7.3.19";
  r.purpose = final ? "final" : "search";
  r.tuner = "xgb";
  r.job = job + 1;
  r.time_unix_ms = 1'700'000'000'000 + index * 20;
  r.candidate = index + 1;
  r.attempt = 1;
  if (trial > 0 && !final && rng.Below(4) == 0) {
    r.outcome = Outcome::kIllegalConfig;
    r.error = "the tile does not fit the registers";
    return r;
  }
  const double seconds = 1e-4 * (1 + 4 * rng.Uniform() / (1 + trial / 200.0));
  for (int i = 0; i < 3; ++i) r.costs_s.push_back(seconds * (1 + 0.01 * rng.Uniform()));
  return r;
}

absl::Status FillRecords(Store& store, int64_t wanted) {
  int64_t have = 0;
  TEMPER_RETURN_IF_ERROR(store.Scan({.limit = 1, .newest_first = true}, [&](const Record& r) { have = r.id; }));
  const double start = Now();
  const int64_t first = have;
  while (have < wanted) {
    std::vector<Record> chunk;
    while (have < wanted && chunk.size() < kFillChunk) chunk.push_back(RecordAt(have++));
    TEMPER_RETURN_IF_ERROR(store.Append(chunk).status());
    if (have % (256 * static_cast<int64_t>(kFillChunk)) == 0) {
      std::fprintf(stderr, "%lld records, %.0f a second\n", static_cast<long long>(have),
                   static_cast<double>(have - first) / (Now() - start));
    }
  }
  return absl::OkStatus();
}

absl::Status FillJobs(Store& store, int64_t wanted) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<JobRow> newest, store.Jobs({.limit = 1}));
  std::atomic<int64_t> next = newest.empty() ? 1 : newest[0].id + 1;
  std::vector<std::thread> writers;  // which share their syncs
  for (int i = 0; i < 16; ++i) {
    writers.emplace_back([&] {
      while (next++ <= wanted) {
        JobRow job;
        job.model = absl::StrCat("model", next % 100, ".onnx");
        job.target = "llvm -mcpu=x86-64-v4 -threads=16";
        job.device_key = absl::StrCat("device", next % kDevices);
        job.tuner = "xgb";
        job.owner = "somebody";
        job.state = "done";
        job.spec = std::string(400, 's');
        job.summary = std::string(4000, 's');
        job.model_hash = absl::StrCat("hash", next % 100);
        job.build_with = "tuned";
        if (!store.CreateJob(job).ok()) return;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  return absl::OkStatus();
}

// What builds ask: mostly for what was tuned on their own device, with a default to beat.
BestQuery RandomQuery(Rng& rng) {
  const Record r = RecordAt(0);
  const int64_t workload = rng.Below(kWorkloads), device = rng.Below(kDevices);
  BestQuery q{Workload(workload),
              Anchor(workload),
              r.target,
              absl::StrCat("device", device),
              absl::StrCat("CPU number ", device, ", 16 cores"),
              r.threads,
              {}};
  q.templates = {{"conv2d.direct", 1}, {"conv2d.winograd", 1}};
  q.default_template = "conv2d.direct";
  q.default_config = Config(0);
  const int64_t kind = rng.Below(10);
  if (kind == 0) q.fingerprint = "";
  if (kind == 1) q.workload += " unknown, but of a known anchor";
  if (kind == 2) q.templates = {{"conv2d.direct", 1}};
  if (kind == 3) q.device_key = q.fingerprint = "unknown";
  return q;
}

// A call's own processor time too: what others on the machine take is not the store's.
struct Times {
  std::vector<double> wall_s, cpu_s;
};

double CpuNow() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Print(const char* what, Times times) {
  std::vector<double>&seconds = times.wall_s, &cpu = times.cpu_s;
  std::sort(seconds.begin(), seconds.end());
  std::sort(cpu.begin(), cpu.end());
  const auto ms = [](const std::vector<double>& sorted, double q) {
    return 1e3 * sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * static_cast<double>(sorted.size())))];
  };
  std::printf("%-34s %8zu calls: median %.3f ms, p99 %.3f ms, worst %.3f ms; of the processor %.3f, %.3f, %.3f\n", what,
              seconds.size(), ms(seconds, 0.5), ms(seconds, 0.99), ms(seconds, 1), ms(cpu, 0.5), ms(cpu, 0.99),
              ms(cpu, 1));
}

template <typename Body>
Times Timed(int64_t calls, const Body& body) {
  Times times;
  for (int64_t i = 0; i < calls; ++i) {
    const double start = Now(), cpu_start = CpuNow();
    body(i);
    times.wall_s.push_back(Now() - start);
    times.cpu_s.push_back(CpuNow() - cpu_start);
  }
  return times;
}

absl::Status Measure(Store& store, int64_t queries) {
  Rng rng(1);
  absl::Status status;
  int64_t answered = 0;
  const auto ask = [&](int64_t) {
    const auto answer = store.Best(RandomQuery(rng));
    status.Update(answer.status());
    answered += answer.ok() && answer->has_value();
  };
  Print("best config, first after opening", Timed(1, ask));
  Print("best config", Timed(queries, ask));
  std::printf("  of which answered: %lld\n", static_cast<long long>(answered));
  Print("jobs, all in one listing", Timed(5, [&](int64_t) { status.Update(store.Jobs({}).status()); }));
  Print("jobs, all in pages of 1,000", Timed(5, [&](int64_t) {
          for (int64_t before = 0;;) {
            const auto page = store.Jobs({.before_id = before, .limit = 1000});
            status.Update(page.status());
            if (!page.ok() || page->empty()) return;
            before = page->back().id;
          }
        }));
  Print("jobs, the newest 100", Timed(100, [&](int64_t) { status.Update(store.Jobs({.limit = 100}).status()); }));
  int64_t next = 0;  // executions that no record is of yet
  const RecordFilter newest{.limit = 1, .newest_first = true};
  status.Update(store.Scan(newest, [&](const Record& r) { next = (int64_t{1} << 60) + r.id; }));
  for (const int64_t size : {1, 64}) {
    const auto write = [&](int64_t) {
      std::vector<Record> records;
      for (int64_t i = 0; i < size; ++i) {
        records.push_back(RecordAt(next % 10'000'000));
        records.back().candidate = next++;
      }
      status.Update(store.Append(records).status());
    };
    const Times times = Timed(size == 1 ? 4000 : 500, write);
    double sum = 0;
    for (const double s : times.wall_s) sum += s;
    Print(size == 1 ? "append of 1 record" : "append of 64 records", times);
    std::printf("  %.0f records a second\n", static_cast<double>(size * times.wall_s.size()) / sum);
  }
  return status;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  CLI::App app("How fast the store is when it is large.");
  std::string file;
  int64_t records = 10'000'000, jobs = 100'000, queries = 20'000;
  app.add_option("file", file, "the database, made if it is not there")->required();
  app.add_option("--records", records, "how many to hold")->capture_default_str();
  app.add_option("--jobs", jobs, "how many to hold")->capture_default_str();
  app.add_option("--queries", queries, "how many best configs to ask for")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto store = temper::OpenStore(file);
  absl::Status status = store.status();
  if (status.ok()) status = temper::FillRecords(**store, records);
  if (status.ok()) status = temper::FillJobs(**store, jobs);
  if (status.ok()) status = temper::Measure(**store, queries);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_store: %s\n", std::string(status.message()).c_str());
  return 1;
}
