// bench_fleet: what one server holds, asked by a thousand workers that measure nothing, each on a connection of its
// own, over mutual TLS. Server and workers share this machine's cores. Each load alone, then a mix.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/temporary_directory.h"
#include "bench/service/null_worker.h"
#include "bench/service/open_loop.h"
#include "bench/service/target.h"
#include "client/admin_client.h"
#include "client/tuner_client.h"
#include "measure_worker/service/membership.h"
#include "proto/channel.h"
#include "security/token.h"
#include "security/server_directory.h"
#include "storage/store.h"
#include "temper/v1/tuning.grpc.pb.h"
#include "tests/chaos/process.h"

namespace temper::bench {
namespace {

constexpr int kQueriesACall = 64;
constexpr int kWorkloads = 1000, kRecordsEach = 20;  // that queries are about
constexpr int kJobs = 60, kOperatorsAJob = 20;

struct Options {
  int workers = 1000;
  double seconds = 10;
  double syncs = 2000, acks = 2000, answers = 10'000;  // a second, each alone; the mix has half of each
};

std::string Workload(int i) {
  return absl::StrCat("(f32[37,", 8 + i, "], const f32[", 8 + i, ",48]) matmul(0,1) -> f32[37,48]; anchor=0");
}

// A store with records to ask for.
absl::Status Fill(const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, OpenStore(path));
  std::vector<Record> records;
  for (int i = 0; i < kWorkloads * kRecordsEach; ++i) {
    Record record;
    record.workload = record.anchor = Workload(i % kWorkloads);
    record.target = NullTarget();
    record.device_key = "asked-for";
    record.fingerprint = "null";
    record.template_name = "gemm";
    record.config = absl::StrCat("i=", i);
    record.codegen_id = kNullCodegen;
    record.costs_s = {1e-3 + 1e-6 * i, 1e-3 + 1e-6 * i, 1e-3 + 1e-6 * i};
    record.time_unix_ms = 1;
    records.push_back(record);
  }
  return store->Append(records).status();
}

// How the fleet's members reach an encrypted server: the workers by one certificate, all others by the admin's token.
struct Access {
  ClientOptions client;
  std::shared_ptr<grpc::ChannelCredentials> worker;
};

absl::StatusOr<Access> JoinOnce(const std::string& address, const std::string& folder, const std::string& directory) {
  Access access{.client = {.authority = directory + "/ca.crt"}};
  TEMPER_ASSIGN_OR_RETURN(access.client.token, ReadTokenFile(directory + "/admin.token"));
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<AdminClient> admin, AdminClient::Connect(address, access.client));
  TEMPER_ASSIGN_OR_RETURN(const v1::AddDeviceReply device, admin->AddDevice(kNullKey));
  TEMPER_RETURN_IF_ERROR(worker::JoinFleet(address, device.invitation(), folder).status());
  TEMPER_ASSIGN_OR_RETURN(access.worker,
                          ChannelCredentialsOf(address, worker::MembershipOf(folder, kNullKey), absl::Now()));
  return access;
}

class Fleet {
 public:
  static absl::StatusOr<std::unique_ptr<Fleet>> Join(const ServerProcess& server, const Access& access,
                                                     const Options& options) {
    TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<ServerConnection> connection,
                            ServerConnection::Dial(server.address(), access.client));
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<TunerClient> client, TunerClient::Connect(server.address(), access.client));
    return std::unique_ptr<Fleet>(
        new Fleet(server.address(), access, options, std::move(connection), std::move(client)));
  }

  // False: somebody could not.
  bool RegisterAll() {
    const absl::Time start = absl::Now();
    std::atomic<int> left = options_.workers, failed = 0;
    for (size_t i = 0; i < workers_.size(); ++i) {
      workers_[i]->Register(kNullKey, absl::StrCat("w", i), [&](bool ok) {
        if (!ok) ++failed;
        --left;
      });
    }
    while (left > 0) absl::SleepFor(absl::Milliseconds(1));
    std::printf("%d workers registered, each on a connection of its own: %.1f s\n", options_.workers,
                absl::ToDoubleSeconds(absl::Now() - start));
    return failed == 0;
  }

  // Jobs enough for all to have something to hand in.
  absl::Status GiveWork() {
    for (int job = 0; job < kJobs; ++job) {
      v1::SubmitJobRequest request;
      request.set_model("load");
      request.set_device_key(kNullKey);
      request.set_tuner("random");
      request.set_no_booster(true);
      request.set_wait_for_device_ms(60'000);
      request.set_time_budget_ms(3'600'000);
      for (int i = 0; i < kOperatorsAJob; ++i) {
        const int n = 64 + 16 * (job * kOperatorsAJob + i);
        request.add_workloads(
            absl::StrCat("(f32[256,256], const f32[256,", n, "]) matmul(0,1) -> f32[256,", n, "]; anchor=0"));
      }
      TEMPER_RETURN_IF_ERROR(client_->SubmitJob(request).status());
    }
    for (const auto& worker : workers_) worker->TakeLeases();
    const absl::Time give_up = absl::Now() + absl::Seconds(60);
    const auto ready = [&] {
      return std::ranges::count_if(workers_, [](const auto& worker) { return worker->HasWork(); });
    };
    while (ready() < options_.workers * 9 / 10 && absl::Now() < give_up) absl::SleepFor(absl::Milliseconds(20));
    std::printf("%d of %d workers hold a lease\n", static_cast<int>(ready()), options_.workers);
    return absl::OkStatus();
  }

  std::unique_ptr<OpenLoop> Syncs(double per_second) {
    return std::make_unique<OpenLoop>("Sync", per_second, [this](int64_t k, OpenLoop::Done done) {
      Nth(k).Sync(std::move(done));
      return true;
    });
  }
  std::unique_ptr<OpenLoop> Acks(double per_second) {
    return std::make_unique<OpenLoop>("durable ack", per_second, [this](int64_t k, OpenLoop::Done done) {
      return Nth(k).SubmitOne(std::move(done));
    });
  }
  std::unique_ptr<OpenLoop> Questions(double answers_per_second) {
    return std::make_unique<OpenLoop>("best config, calls of 64", answers_per_second / kQueriesACall,
                                      [this](int64_t k, OpenLoop::Done done) {
                                        Ask(k, std::move(done));
                                        return true;
                                      });
  }

  void Stop() {
    for (const auto& worker : workers_) worker->Stop();
  }

 private:
  Fleet(const std::string& address, const Access& access, const Options& options,
        std::shared_ptr<ServerConnection> connection, std::unique_ptr<TunerClient> client)
      : options_(options),
        connection_(std::move(connection)),
        client_(std::move(client)),
        asking_(v1::TuningService::NewStub(connection_->channel())) {
    for (int i = 0; i < options.workers; ++i) workers_.push_back(std::make_unique<NullWorker>(address, access.worker));
  }
  NullWorker& Nth(int64_t k) { return *workers_[static_cast<size_t>(k) % workers_.size()]; }

  void Ask(int64_t k, OpenLoop::Done done) {
    struct Call {
      grpc::ClientContext context;
      v1::QueryBestRequest request;
      v1::QueryBestReply reply;
    };
    auto call = std::make_shared<Call>();
    connection_->Prepare(call->context, absl::Seconds(30));
    for (int i = 0; i < kQueriesACall; ++i) {
      v1::BestQuery* query = call->request.add_queries();
      query->set_workload(Workload(static_cast<int>((k * kQueriesACall + i) % kWorkloads)));
      query->set_target(NullTarget());
      query->set_device_key("asked-for");
    }
    asking_->async()->QueryBest(&call->context, &call->request, &call->reply,
                                [call, done = std::move(done)](const grpc::Status& status) {
                                  bool all = status.ok() && call->reply.answers_size() == kQueriesACall;
                                  for (const v1::BestAnswer& answer : call->reply.answers()) all &= answer.found();
                                  done(all);
                                });
  }

  const Options options_;
  const std::shared_ptr<ServerConnection> connection_;
  const std::unique_ptr<TunerClient> client_;
  std::vector<std::unique_ptr<NullWorker>> workers_;
  std::unique_ptr<v1::TuningService::Stub> asking_;
};

// Side by side; a line for each.
void Measure(const char* what, const ServerProcess& server, const Options& options,
             std::vector<std::unique_ptr<OpenLoop>> loads) {
  const double cpu = server.CpuSeconds();
  const absl::Time start = absl::Now();
  std::vector<std::thread> threads;
  for (const auto& load : loads) threads.emplace_back([&] { load->Run(absl::Seconds(options.seconds)); });
  for (std::thread& thread : threads) thread.join();
  const double share = (server.CpuSeconds() - cpu) / absl::ToDoubleSeconds(absl::Now() - start);
  for (const auto& load : loads) {
    std::printf("%-6s %-26s %9.0f %9.0f %8.1f %8.1f %8.1f %7d %8d %6.2f\n", what, load->name().c_str(), load->wanted(),
                load->answered_per_second(), load->Percentile(0.5), load->Percentile(0.99), load->Percentile(0.999),
                static_cast<int>(load->failed()), static_cast<int>(load->starved()), share);
  }
  std::fflush(stdout);
}

absl::Status Run(const Options& options) {
  TEMPER_ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Make());
  const std::string db = folder.path() + "/records.db";
  TEMPER_RETURN_IF_ERROR(Fill(db));
  const std::string directory = folder.path() + "/server";
  TEMPER_RETURN_IF_ERROR(InitServerDirectory(directory, {}, absl::Now()));
  ServerProcess server;
  TEMPER_RETURN_IF_ERROR(server.Start({.db = db, .arguments = {"--dir", directory}}));
  TEMPER_ASSIGN_OR_RETURN(const Access access, JoinOnce(server.address(), folder.path(), directory));
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Fleet> fleet, Fleet::Join(server, access, options));
  if (!fleet->RegisterAll()) return absl::UnavailableError("not all workers could register");
  const auto list = [](auto... load) {
    std::vector<std::unique_ptr<OpenLoop>> loads;
    (loads.push_back(std::move(load)), ...);
    return loads;
  };
  std::printf("\n%-6s %-26s %9s %9s %8s %8s %8s %7s %8s %6s\n", "", "calls", "wanted/s", "had/s", "p50 ms", "p99 ms",
              "p99.9 ms", "failed", "starved", "cores");
  Measure("alone", server, options, list(fleet->Syncs(options.syncs)));
  Measure("alone", server, options, list(fleet->Questions(options.answers)));
  TEMPER_RETURN_IF_ERROR(fleet->GiveWork());
  Measure("alone", server, options, list(fleet->Acks(options.acks)));
  Measure("mix", server, options,
          list(fleet->Syncs(options.syncs / 2), fleet->Acks(options.acks / 2), fleet->Questions(options.answers / 2)));
  std::printf("\nbars: 2,000 Sync/s at p99 below 50 ms; 2,000 durable acks/s; 10,000 answers/s (156 calls)\n");
  fleet->Stop();
  server.KillAndWait();
  return absl::OkStatus();
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) {
  temper::bench::Options options;
  CLI::App app("What one temper-server holds: workers without a device, at rates that do not wait for it.",
               "bench_fleet");
  app.add_option("--workers", options.workers, "On connections of their own")->capture_default_str();
  app.add_option("--seconds", options.seconds, "For each load")->capture_default_str();
  app.add_option("--syncs", options.syncs, "Sync a second")->capture_default_str();
  app.add_option("--acks", options.acks, "Results a second, one a call")->capture_default_str();
  app.add_option("--answers", options.answers, "Best configs a second")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (const absl::Status ran = temper::bench::Run(options); !ran.ok()) {
    std::fprintf(stderr, "bench_fleet: %s\n", std::string(ran.message()).c_str());
    return 1;
  }
  return 0;
}
