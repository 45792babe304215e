// A server on loopback with real TLS, its admin, its clients and its workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/secure_random.h"
#include "base/temporary_directory.h"
#include "client/admin_client.h"
#include "client/tuner_client.h"
#include "measure_worker/service/membership.h"
#include "security/files.h"
#include "security/server_directory.h"
#include "security/token.h"
#include "proto/channel.h"
#include "proto/convert.h"
#include "temper/v1/admin.grpc.pb.h"
#include "temper/v1/worker.grpc.pb.h"
#include "tests/base/captured_log.h"
#include "tests/chaos/process.h"
#include "tests/security/memory_access_store.h"
#include "tests/security/testing.h"
#include "tests/security/tls_probe.h"
#include "tests/server/fallible_store.h"
#include "tests/storage/testing.h"
#include "tuner_server/service/callers.h"
#include "tuner_server/service/server.h"

namespace temper {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kWorkload[] = "(f32[8,8]) relu(0) -> f32[8,8]; anchor=0";

// A job that waits for a device.
v1::SubmitJobRequest JobRequest() {
  v1::SubmitJobRequest request;
  request.set_model("m");
  request.add_workloads(kWorkload);
  request.set_device_key("a");
  request.set_tuner("random");
  request.set_trials(1);
  request.set_wait_for_device_ms(absl::ToInt64Milliseconds(kPatience));
  return request;
}

// What a file says once it says something else than `before`; or `before`, if that takes too long.
std::string AwaitChange(const std::string& path, const std::string& before) {
  std::string now = before;
  for (const absl::Time give_up = absl::Now() + kPatience; now == before && absl::Now() < give_up;) {
    now = *ReadSmallFile(path, Secrecy::kPublic);
  }
  return now;
}

// A worker's calls by themselves.
class Worker {
 public:
  // `token`: shown with each call; empty: none.
  Worker(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
         const std::string& token = "")
      : token_(token), stub_(v1::WorkerService::NewStub(grpc::CreateChannel(address, credentials))) {}

  absl::StatusOr<std::string> Register(const std::string& key, const std::string& fingerprint = "this device") {
    v1::RegisterRequest request;
    request.set_device_key(key);
    request.set_fingerprint(fingerprint);
    request.set_target("llvm:haswell");
    request.set_codegen_id("c1");
    request.set_name("test");
    request.set_instance(instance_);
    request.set_threads(1);
    request.set_slots(1);
    request.set_wire_version(kWireVersion);
    v1::RegisterReply reply;
    const absl::Status status = Call(&v1::WorkerService::Stub::Register, request, reply);
    if (!status.ok()) return status;
    return reply.session();
  }
  absl::Status Sync(const std::string& session, absl::Duration wait = absl::ZeroDuration()) {
    v1::SyncRequest request;
    request.set_session(session);
    request.set_wait_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(wait)));
    request.set_free_slots(1);
    v1::SyncReply reply;
    return Call(&v1::WorkerService::Stub::Sync, request, reply);
  }
  absl::Status Leave(const std::string& session) {
    v1::LeaveRequest request;
    request.set_session(session);
    v1::LeaveReply reply;
    return Call(&v1::WorkerService::Stub::Leave, request, reply);
  }
  // The first lease that comes.
  v1::Lease AwaitLease(const std::string& session) {
    v1::SyncRequest request;
    request.set_session(session);
    request.set_wait_ms(20'000);
    request.set_free_slots(1);
    v1::SyncReply reply;
    while (reply.grants().empty()) {
      const absl::Status status = Call(&v1::WorkerService::Stub::Sync, request, reply);
      if (!status.ok()) return {};
    }
    return reply.grants(0);
  }
  // Whether a result for the lease's first candidate was taken.
  absl::StatusOr<bool> Submit(const std::string& session, const v1::Lease& lease = {}) {
    v1::SubmitResultsRequest request;
    request.set_session(session);
    request.set_instance(instance_);
    v1::CandidateResult& result = *request.add_results();
    result.set_lease(std::max<int64_t>(1, lease.lease()));
    if (lease.batch().candidates_size() > 0) {
      result.set_candidate(lease.batch().candidates(0).candidate());
      result.set_attempt(lease.batch().candidates(0).attempt());
    }
    result.set_outcome("ok");
    for (int i = 0; i < 5; ++i) result.add_costs_s(1e-3);
    v1::SubmitResultsReply reply;
    const absl::Status status = Call(&v1::WorkerService::Stub::SubmitResults, request, reply);
    if (!status.ok()) return status;
    return reply.acked_size() == 1 && reply.acked(0);
  }

 private:
  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (v1::WorkerService::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply& reply) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    if (!token_.empty()) context.AddMetadata(kAuthorizationKey, kBearerPrefix + token_);
    return FromGrpc((stub_.get()->*method)(&context, request, &reply));
  }
  const std::string instance_ = SecureHex(), token_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
};

// The machine's own, with another date.
class CalendarClock : public Clock {
 public:
  absl::Duration Monotonic() const override { return Clock::System().Monotonic(); }
  absl::Time Wall() const override { return Clock::System().Wall() + absl::Seconds(ahead_s_.load()); }
  void Turn(absl::Duration ahead) { ahead_s_ += absl::ToInt64Seconds(ahead); }

 private:
  std::atomic<int64_t> ahead_s_ = 0;
};

class FleetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);  // as a worker's program does
    ASSERT_TRUE(InitServerDirectory(dir(), {}, absl::Now()).ok());
    authority_ = dir() + "/ca.crt";
    admin_token_ = *ReadTokenFile(dir() + "/admin.token");
    StartServer("127.0.0.1:0");
  }
  std::string dir() const { return parent_.path() + "/server"; }
  std::string state() const { return parent_.path() + "/state"; }
  void StartServer(const std::string& listen) {
    server_.reset();
    ServerOptions options;
    options.listen = listen;
    options.directory = dir();
    options.connection_age = connection_age_;
    auto server = Server::Start(*store_, clock_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    admin_ = Client<AdminClient>(admin_token_);
  }
  const std::string& address() const { return server_->address(); }

  template <typename C = TunerClient>
  std::unique_ptr<C> Client(const std::string& token) {
    return *C::Connect(address(), {.call_timeout = kPatience, .authority = authority_, .token = token});
  }
  std::string Token(const std::string& owner, const std::string& scopes) {
    v1::AddTokenRequest request;
    request.set_owner(owner);
    request.set_scopes(scopes);
    return admin_->AddToken(request)->token();
  }
  absl::StatusOr<std::string> Join(const std::string& key) {
    return worker::JoinFleet(address(), admin_->AddDevice(key)->invitation(), state());
  }
  Worker Joined(const std::string& key) {
    EXPECT_TRUE(Join(key).ok());
    auto tls = WatchedCredentialsOf(address(), worker::MembershipOf(state(), key), absl::Now());
    EXPECT_TRUE(tls.ok()) << tls.status();
    watches_.push_back(std::move(tls->watch));
    return Worker(address(), tls->credentials);
  }
  std::shared_ptr<grpc::ChannelCredentials> Trusting() {
    return ChannelCredentialsFor(*ReadSmallFile(authority_, Secrecy::kPublic));
  }
  // Shows a certificate whatever it says.
  Worker Showing(const std::string& certificate, const PrivateKey& key) {
    grpc::experimental::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
        *ReadSmallFile(authority_, Secrecy::kPublic),
        std::vector<grpc::experimental::IdentityKeyCertPair>{{key.Pem(), certificate}}));
    options.watch_root_certs();
    options.watch_identity_key_cert_pairs();
    return Worker(address(), grpc::experimental::TlsCredentials(options));
  }

  TemporaryDirectory parent_ = *TemporaryDirectory::Make();
  CalendarClock clock_;
  absl::Duration connection_age_ = absl::Hours(1);
  std::unique_ptr<Store> store_ = *OpenStore("memory:");
  std::string authority_, admin_token_;
  std::vector<std::unique_ptr<TlsWatch>> watches_;  // of those that joined
  std::unique_ptr<Server> server_;
  std::unique_ptr<AdminClient> admin_;
};

TEST_F(FleetTest, AWorkerJoinsMeasuresAndIsRevoked) {
  Worker device = Joined("a");
  const auto session = device.Register("a");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(device.Sync(*session).ok());
  EXPECT_TRUE(device.Submit(*session).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(device.Register("b").status()));
  ASSERT_TRUE(admin_->RevokeDevice("a").ok());
  for (const absl::Status& status :
       {device.Sync(*session), device.Submit(*session).status(), device.Register("a").status()}) {
    EXPECT_EQ(Message(status), "the certificate was revoked");
    EXPECT_TRUE(absl::IsUnauthenticated(status));
  }
}

TEST_F(FleetTest, AWorkerThatRenewsItsCertificateIsKnownForYearsWithoutARestart) {
  connection_age_ = absl::Seconds(1);
  StartServer("127.0.0.1:0");
  Worker device = Joined("a");
  const std::string session = *device.Register("a");
  const TlsFiles files = worker::MembershipOf(state(), "a");
  EXPECT_FALSE(*worker::RenewMembership(address(), files, clock_.Wall())) << "it is not due";
  for (int life = 0; life < 2; ++life) {
    clock_.Turn(0.7 * kWorkerLifetime);
    const auto renewed = worker::RenewMembership(address(), files, clock_.Wall());
    ASSERT_TRUE(renewed.ok()) << renewed.status();
    EXPECT_TRUE(*renewed);
    watches_.back()->LookAgain();
  }
  // Its connection stands all the while, and showed the first certificate, which has ended by now. It is made again.
  absl::Status status = device.Sync(session);
  for (const absl::Time give_up = absl::Now() + kPatience; !status.ok() && absl::Now() < give_up;) {
    EXPECT_THAT(Message(status), HasSubstr("expired"));
    status = device.Sync(session);
  }
  EXPECT_TRUE(status.ok()) << status;
  clock_.Turn(2 * kWorkerLifetime);
  EXPECT_THAT(Message(worker::RenewMembership(address(), files, clock_.Wall()).status()), HasSubstr("join again"));
}

TEST_F(FleetTest, AWorkersProcessRenewsItsCertificate) {
  const PrivateKey key = *PrivateKey::Generate();
  const Validity ending{absl::Now() - absl::Hours(20), absl::Now() + absl::Hours(1)};
  const std::string keys[] = {"a"};
  const std::string before = *OpenServerDirectory(dir())->authority.SignWorker(*key.CertificateRequest(), keys, ending);
  ASSERT_TRUE(store_->access().PutCertificate({ReadCertificate(before)->serial, "a", 0, 0, false}).ok());
  StartServer("127.0.0.1:0");
  const std::string certificate_path = parent_.path() + "/worker.crt", key_path = parent_.path() + "/worker.key";
  ASSERT_TRUE(WriteWholeFile(certificate_path, before, Secrecy::kPublic, Existing::kRefuse).ok());
  ASSERT_TRUE(WriteWholeFile(key_path, key.Pem(), Secrecy::kPrivate, Existing::kRefuse).ok());
  Process worker;
  ASSERT_TRUE(worker
                  .Start({.arguments = {TEMPER_BINARY_DIR "/bin/temper-worker", "--server", address(), "--key", "a",
                                        "--device", "null", "--spool", parent_.path() + "/spool", "--ca", authority_,
                                        "--cert", certificate_path, "--cert-key", key_path}})
                  .ok());
  const std::string after = AwaitChange(certificate_path, before);
  ASSERT_NE(after, before) << worker.Errors();
  EXPECT_GT(ReadCertificate(after)->validity.until, absl::Now() + 0.9 * kWorkerLifetime);
}

TEST_F(FleetTest, AServerRenewsItsOwnCertificate) {
  server_.reset();
  const std::string before = *ReadSmallFile(dir() + "/server.crt", Secrecy::kPublic);
  clock_.Turn(0.7 * kServerLifetime);
  StartServer("127.0.0.1:0");
  EXPECT_NE(AwaitChange(dir() + "/server.crt", before), before);
}

TEST_F(FleetTest, ACallThatWaitsEndsWhenItsWorkerIsRevoked) {
  Worker device = Joined("a"), other = Joined("b");
  const std::string session = *device.Register("a"), others = *other.Register("b");
  // Of two calls of one session the newer ends the older: when one is over, the other waits.
  std::promise<void> one_is_over;
  std::once_flag told;
  const auto wait = [&] {
    const absl::Status status = device.Sync(session, absl::Seconds(20));
    std::call_once(told, [&] { one_is_over.set_value(); });
    return status;
  };
  auto one = std::async(std::launch::async, wait), two = std::async(std::launch::async, wait);
  auto unmoved = std::async(std::launch::async, [&] { return other.Sync(others, absl::Milliseconds(200)); });
  one_is_over.get_future().wait();
  const absl::Time revoked = absl::Now();
  ASSERT_TRUE(admin_->RevokeDevice("a").ok());
  const absl::Status ends[] = {one.get(), two.get()};
  EXPECT_LT(absl::Now() - revoked, absl::Seconds(15)) << "it waited for its own end";
  EXPECT_NE(ends[0].ok(), ends[1].ok());
  EXPECT_TRUE(absl::IsCancelled(ends[0].ok() ? ends[1] : ends[0]));
  EXPECT_TRUE(unmoved.get().ok());
}

TEST_F(FleetTest, AWatchEndsWhenItsTokenIsRevoked) {
  const std::string token = Token("alice", "read,submit");
  const auto client = Client(token);
  const auto job = client->SubmitJob(JobRequest());
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::Status status = client->WatchJob(*job, [&](const v1::JobEvent&) {
    EXPECT_TRUE(admin_->RevokeToken(ParseToken(token)->id).ok());
    return true;
  });
  EXPECT_EQ(Message(status), "the token was revoked");
}

TEST_F(FleetTest, AWatchEndsWhenItsTokenExpires) {
  v1::AddTokenRequest request;
  request.set_owner("alice");
  request.set_scopes("read,submit");
  request.set_lifetime_ms(absl::ToInt64Milliseconds(absl::Hours(2)));
  const auto client = Client(admin_->AddToken(request)->token());
  const auto job = client->SubmitJob(JobRequest());
  ASSERT_TRUE(job.ok()) << job.status();
  bool turned = false;
  const absl::Status status = client->WatchJob(*job, [&](const v1::JobEvent&) {
    if (!std::exchange(turned, true)) clock_.Turn(absl::Hours(2));
    return true;
  });
  EXPECT_EQ(Message(status), "the token has expired");
}

// Holds up each write of what concerns access until it is let go.
class StalledStore : public FallibleStore {
 public:
  StalledStore() {
    access_.before_writes = [this] {
      if (!stalled_) return;
      ++waiting_;
      go_on_.wait();
    };
  }
  AccessStore& access() override { return access_; }
  void Stall() { stalled_ = true; }
  void Fill() { access_.failure = absl::UnavailableError("the disk is full"); }
  void GoOn() { let_go_.set_value(); }
  int waiting() const { return waiting_; }

 private:
  MemoryAccessStore access_;
  std::atomic<bool> stalled_ = false;
  std::atomic<int> waiting_ = 0;
  std::promise<void> let_go_;
  std::shared_future<void> go_on_ = let_go_.get_future().share();
};

TEST_F(FleetTest, WhatIsStoredForOthersDelaysNoWorker) {
  constexpr int kOfAKind = 20;  // more than gRPC has threads
  auto owned = std::make_unique<StalledStore>();
  StalledStore& store = *owned;
  server_.reset();
  store_ = std::move(owned);
  StartServer("127.0.0.1:0");
  Worker device = Joined("a"), newcomer = Joined("a");
  const std::string session = *device.Register("a", "one");
  // One connection for all calls of a kind: so many handshakes at once outlast the server's patience with each.
  const auto alice = Client(Token("alice", "read,submit")), nobody = Client("");
  const PrivateKey key = *PrivateKey::Generate();
  const auto enroll = v1::EnrollService::NewStub(
      grpc::CreateChannel(address(), ChannelCredentialsFor(*ReadSmallFile(authority_, Secrecy::kPublic))));
  const int64_t job = *alice->SubmitJob(JobRequest());
  std::vector<std::string> invitations;
  for (int i = 0; i < kOfAKind; ++i) invitations.push_back(admin_->AddDevice("b")->invitation());
  store.Stall();
  std::vector<std::future<absl::Status>> calls;
  const auto begin = [&](std::function<absl::Status()> call) {
    calls.push_back(std::async(std::launch::async, std::move(call)));
  };
  for (int i = 0; i < kOfAKind; ++i) {
    begin([&, i] {
      v1::JoinRequest request;
      request.set_invitation(invitations[i]);
      request.set_signing_request(*key.CertificateRequest());
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
      v1::JoinReply reply;
      return FromGrpc(enroll->Join(&context, request, &reply));
    });
    begin([&] { return admin_->AddDevice("c").status(); });
    begin([&] { return alice->SetPriority(job, 1); });
    begin([&, i] { return newcomer.Register("a", absl::StrCat("other ", i)).status(); });
    begin([&] {
      const absl::Status refused = nobody->ListJobs().status();
      return absl::IsUnauthenticated(refused) ? absl::OkStatus() : refused;
    });
  }
  constexpr int kLanes = 4;  // what joins, what is new, what is refused, what admins and owners do
  for (const absl::Time give_up = absl::Now() + kPatience; store.waiting() < kLanes && absl::Now() < give_up;) {
    std::this_thread::yield();
  }
  for (int i = 0; i < 3; ++i) {
    const absl::Status answered = device.Sync(session);
    EXPECT_TRUE(answered.ok()) << answered;
  }
  store.GoOn();
  for (std::future<absl::Status>& call : calls) {
    const absl::Status status = call.get();
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(FleetTest, AnInvitationCountsOnce) {
  const std::string invitation = admin_->AddDevice("a")->invitation();
  EXPECT_EQ(*worker::JoinFleet(address(), invitation, state()), "a");
  const auto again = worker::JoinFleet(address(), invitation, state());
  EXPECT_THAT(Message(again.status()), HasSubstr("was used"));
  EXPECT_TRUE(Join("a").ok()) << "another one replaces what the first left";
}

TEST_F(FleetTest, AJoiningWorkerTellsNothingToAnotherServer) {
  const auto other = CertificateAuthority::Create(*PrivateKey::Generate(), {absl::Now(), absl::Now() + absl::Hours(1)});
  const PrivateKey key = *PrivateKey::Generate();
  const std::string chain =
      *other->SignServer(key, std::vector<std::string>{"127.0.0.1"}, {absl::Now(), absl::Now() + absl::Hours(1)});
  const std::string invitation = admin_->AddDevice("a")->invitation();
  OneHandshake impostor(chain, key);
  const auto joined = worker::JoinFleet(impostor.address(), invitation, state());
  EXPECT_TRUE(absl::IsPermissionDenied(joined.status())) << joined.status();
  EXPECT_EQ(*worker::JoinFleet(address(), invitation, state()), "a") << "the invitation is still good";
}

TEST_F(FleetTest, CertificatesThatAreExpiredForeignOrUnknownAreRefusedEachInItsOwnWords) {
  const auto ours = OpenServerDirectory(dir())->authority;
  const auto other = CertificateAuthority::Create(*PrivateKey::Generate(), {absl::Now(), absl::Now() + absl::Hours(1)});
  const PrivateKey key = *PrivateKey::Generate();
  const std::string request = *key.CertificateRequest();
  const std::vector<std::string> keys = {"a"};
  const Validity past = {absl::Now() - absl::Hours(2), absl::Now() - absl::Hours(1)};
  const Validity present = {absl::Now(), absl::Now() + absl::Hours(1)};
  const std::string expired = *ours.SignWorker(request, keys, past);
  EXPECT_THAT(Message(Showing(expired, key).Register("a").status()), HasSubstr("the certificate expired on"));
  EXPECT_EQ(Message(Showing(*ours.SignWorker(request, keys, present), key).Register("a").status()),
            "the certificate is not known here; join again");
  EXPECT_THAT(Message(Showing(*other->SignWorker(request, keys, present), key).Register("a").status()),
              HasSubstr("not one of this server's workers"));
}

TEST_F(FleetTest, AWorkersOwnExpiredCertificateIsToldAtOnce) {
  const PrivateKey key = *PrivateKey::Generate();
  const std::string certificate =
      *OpenServerDirectory(dir())->authority.SignWorker(*key.CertificateRequest(), std::vector<std::string>{"a"},
                                                        {absl::Now() - absl::Hours(2), absl::Now() - absl::Hours(1)});
  const TlsFiles files = {authority_, parent_.path() + "/crt", parent_.path() + "/key"};
  ASSERT_TRUE(WriteWholeFile(files.certificate, certificate, Secrecy::kPublic, Existing::kRefuse).ok());
  ASSERT_TRUE(WriteWholeFile(files.key, key.Pem(), Secrecy::kPrivate, Existing::kRefuse).ok());
  EXPECT_THAT(Message(ChannelCredentialsOf(address(), files, absl::Now()).status()), HasSubstr("expired on"));
}

TEST_F(FleetTest, AServerOfAnotherAuthorityIsNotTalkedTo) {
  const auto other = CertificateAuthority::Create(*PrivateKey::Generate(), {absl::Now(), absl::Now() + absl::Hours(1)});
  const std::string path = parent_.path() + "/other.crt";
  ASSERT_TRUE(WriteWholeFile(path, other->certificate_pem(), Secrecy::kPublic, Existing::kRefuse).ok());
  const auto client = *TunerClient::Connect(address(), {.authority = path, .token = admin_token_});
  const absl::Status status = client->ListJobs().status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(Message(status), HasSubstr("certificate verify failed"));
}

TEST_F(FleetTest, WhoShowsNothingOrSpeaksPlainlyGetsNowhere) {
  EXPECT_EQ(Message(Client("")->ListJobs().status()), "ListJobs needs a token with the scope read");
  EXPECT_FALSE((*TunerClient::Connect(address()))->ListJobs().ok());
  EXPECT_EQ(Message(Client("tmpr_nonsense")->ListJobs().status()), "this is not a token: one begins with tmpr_");
  EXPECT_EQ(Message(Client(MintToken({"mallory", {Scope::kAdmin}}, absl::Now()).text)->ListJobs().status()),
            "the token is not known here");
  EXPECT_THAT(server_->core().metrics().Text(), HasSubstr("temper_denied_calls_total{reason=\"unauthenticated\"} 3\n"));
}

TEST_F(FleetTest, TokensAreListedPageByPage) {
  constexpr size_t kTokens = 250;  // more than a page
  std::set<std::string> owners;
  for (size_t i = 0; i < kTokens; ++i) {
    owners.insert(absl::StrCat("user-", i));
    Token(absl::StrCat("user-", i), "read");
  }
  const auto tokens = admin_->ListTokens();
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  for (const v1::TokenSummary& token : *tokens) owners.erase(token.owner());
  EXPECT_TRUE(owners.empty());
  EXPECT_EQ(tokens->size(), kTokens + 1) << "those and the admin's own, once each";
}

TEST_F(FleetTest, TokensDoWhatTheirScopesSay) {
  const auto reader = Client(Token("alice", "read")), submitter = Client(Token("alice", "submit"));
  EXPECT_TRUE(reader->ListJobs().ok());
  EXPECT_TRUE(absl::IsPermissionDenied(reader->SubmitJob(JobRequest()).status()));
  EXPECT_TRUE(submitter->SubmitJob(JobRequest()).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(submitter->ListJobs().status()));
  EXPECT_TRUE(absl::IsPermissionDenied(submitter->ListDevices().status()));
  const auto as_admin = Client<AdminClient>(Token("alice", "read,submit,measure"));
  EXPECT_TRUE(absl::IsPermissionDenied(as_admin->ListTokens().status()));
  EXPECT_TRUE(absl::IsPermissionDenied(as_admin->AddDevice("a").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(as_admin->RevokeDevice("a").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(as_admin->ListAudit(1).status()));
}

TEST_F(FleetTest, ARecordPutByHandOutranksAMeasuredOneOnAnAdminsWordAlone) {
  Record measured = GoodRecord(), put = WithCosts(GoodRecord(), {1e-6, 1e-6, 1e-6});
  put.config = "faster";
  ASSERT_TRUE(store_->Append({&measured, 1}).ok());
  const auto bob = Client(Token("bob", "read,submit"));
  const auto best = [&] {
    const BestQuery query = QueryFor(measured);
    return (*bob->QueryBest({&query, 1}))[0]->record.config;
  };
  EXPECT_TRUE(bob->PutRecords({&put, 1}).ok());
  EXPECT_EQ(best(), measured.config);
  EXPECT_TRUE(absl::IsPermissionDenied(bob->PutRecords({&put, 1}, /*trusted=*/true).status()));
  EXPECT_EQ(best(), measured.config);
  EXPECT_TRUE(Client(admin_token_)->PutRecords({&put, 1}, /*trusted=*/true).ok());
  EXPECT_EQ(best(), put.config);
}

TEST_F(FleetTest, AJobIsItsOwnersToCancel) {
  const auto alice = Client(Token("alice", "read,submit")), also_alice = Client(Token("alice", "submit"));
  const auto bob = Client(Token("bob", "read,submit"));
  const int64_t first = *alice->SubmitJob(JobRequest()), second = *alice->SubmitJob(JobRequest());
  const absl::Status foreign = bob->CancelJob(first);
  EXPECT_TRUE(absl::IsPermissionDenied(foreign));
  EXPECT_THAT(Message(foreign), HasSubstr("belongs to alice"));
  EXPECT_TRUE(also_alice->CancelJob(first).ok());
  EXPECT_TRUE(Client(admin_token_)->CancelJob(second).ok());
}

TEST_F(FleetTest, OfAUserWhoseTokensAreRevokedNothingMoreIsGranted) {
  Worker worker = Joined("a");
  const std::string session = *worker.Register("a");
  const std::string former = Token("alice", "read,submit"), latter = Token("alice", "submit");
  Token("alice", "read");
  const auto bob = Client(Token("bob", "read,submit"));
  v1::SubmitJobRequest request = JobRequest();
  request.set_trials(1000);
  request.clear_workloads();
  request.add_workloads("(f32[64,64], const f32[64,64]) matmul(0,1) -> f32[64,64]; anchor=0");
  const int64_t alices = *Client(former)->SubmitJob(request);
  const auto state_of = [&](int64_t job) {
    const auto jobs = *bob->ListJobs();
    for (const v1::JobSummary& summary : jobs) {
      if (summary.job() == job) return summary.state() + ": " + summary.reason();
    }
    return std::string();
  };
  ASSERT_TRUE(admin_->RevokeToken(ParseToken(former)->id).ok());
  const v1::Lease lease = worker.AwaitLease(session);
  EXPECT_EQ(lease.job(), alices) << "alice has another token";
  ASSERT_TRUE(admin_->RevokeToken(ParseToken(latter)->id).ok());
  for (const absl::Time give_up = absl::Now() + kPatience; absl::Now() < give_up;) {
    if (state_of(alices).starts_with("cancelled")) break;
    std::this_thread::yield();
  }
  EXPECT_EQ(state_of(alices), "cancelled: the last token of its owner's that may submit it was revoked");
  EXPECT_TRUE(worker.Submit(session, lease).value_or(false)) << "what was measured is kept";
  const int64_t bobs = *bob->SubmitJob(request);
  EXPECT_EQ(worker.AwaitLease(session).job(), bobs);
}

TEST_F(FleetTest, AStolenLeaseIsWorthNothing) {
  Worker holder = Joined("a"), thief = Joined("b");
  const std::string session = *holder.Register("a"), thiefs = *thief.Register("b");
  const auto client = Client(Token("alice", "read,submit"));
  ASSERT_TRUE(client->SubmitJob(JobRequest()).ok());
  const v1::Lease lease = holder.AwaitLease(session);
  ASSERT_GT(lease.batch().candidates_size(), 0);
  EXPECT_FALSE(thief.Submit(thiefs, lease).value_or(true)) << "with its own session";
  EXPECT_FALSE(thief.Submit(session, lease).value_or(true)) << "with the holder's";
  EXPECT_TRUE(holder.Submit(session, lease).value_or(false)) << "the holder's counts all the same";
}

TEST_F(FleetTest, AStolenSessionIsWorthNothing) {
  Worker holder = Joined("a"), thief = Joined("a");
  const std::string session = *holder.Register("a");
  EXPECT_EQ(Message(thief.Sync(session)), "the session is another worker's");
  EXPECT_TRUE(absl::IsPermissionDenied(thief.Leave(session)));
  ASSERT_TRUE(Client(Token("alice", "read,submit"))->SubmitJob(JobRequest()).ok());
  EXPECT_GT(holder.AwaitLease(session).batch().candidates_size(), 0) << "the holder's counts all the same";
  EXPECT_TRUE(holder.Leave(session).ok());
}

TEST_F(FleetTest, ANewFingerprintWaitsForApproval) {
  Worker first = Joined("a"), second = Joined("a");
  EXPECT_TRUE(first.Register("a", "one").ok());
  EXPECT_TRUE(second.Register("a", "other").ok());
  const auto told = [&] {
    std::string all;
    const auto devices = Client(admin_token_)->ListDevices();
    for (const v1::Device& device : devices.value()) {
      all += device.fingerprint() + " " + device.state() + " " + device.reason() + "; ";
    }
    return all;
  };
  EXPECT_THAT(told(), AllOf(HasSubstr("one idle"), HasSubstr("other pending"), HasSubstr("temper device approve a")));
  EXPECT_TRUE(absl::IsNotFound(admin_->ApproveDevice("a", "third").status()));
  EXPECT_EQ(*admin_->ApproveDevice("a", "other"), 1);
  EXPECT_THAT(told(), AllOf(HasSubstr("one idle"), HasSubstr("other idle")));
}

TEST_F(FleetTest, OfARevokedKeyAWorkerWithATokenGetsNothingMore) {
  Worker joined = Joined("a"), other(address(), Trusting(), Token("ci", "measure"));
  const std::string session = *other.Register("a");
  ASSERT_TRUE(admin_->RevokeDevice("a").ok());
  const auto state = [&] { return Client(admin_token_)->ListDevices()->at(0).state(); };
  EXPECT_EQ(state(), "pending") << "the session that it has";
  ASSERT_TRUE(other.Register("a").ok());
  EXPECT_EQ(state(), "pending") << "and another";
  EXPECT_EQ(*admin_->ApproveDevice("a", "this device"), 1);
  EXPECT_EQ(state(), "idle");
}

TEST_F(FleetTest, WhatWasDoneIsAudited) {
  EXPECT_FALSE(Client(Token("bob", "read"))->CancelJob(7).ok());
  ASSERT_TRUE(Join("a").ok());
  std::vector<std::string> lines;
  // Nobody waits for the line of a refusal, so it may be later than what came after it.
  for (const absl::Time give_up = absl::Now() + kPatience; lines.size() < 4 && absl::Now() < give_up;) {
    const auto entries = admin_->ListAudit(100);
    ASSERT_TRUE(entries.ok()) << entries.status();
    lines.clear();
    for (const v1::AuditEntry& e : *entries) lines.push_back(e.verdict() + " " + e.call() + " " + e.subject());
  }
  EXPECT_THAT(lines, testing::UnorderedElementsAre("allowed Join a", "allowed AddDevice a", "refused CancelJob job 7",
                                                   "allowed AddToken bob read"));
}

TEST_F(FleetTest, WhatWasAllowedAndFailedIsAuditedWithItsReason) {
  const absl::Status failed = admin_->RevokeToken("none");
  ASSERT_FALSE(failed.ok());
  const auto entries = admin_->ListAudit(2);
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].verdict(), "failed");
  EXPECT_EQ((*entries)[0].detail(), failed.message());
  EXPECT_EQ((*entries)[1].verdict(), "allowed");
  for (const v1::AuditEntry& e : *entries) EXPECT_EQ(e.call() + " " + e.subject(), "RevokeToken none");
}

TEST_F(FleetTest, WhoChangesThingsWithoutAnEndDoesNotFillTheAudit) {
  const auto bob = Client(Token("bob", "submit")), alice = Client(Token("alice", "submit"));
  int taken = 0;
  while (taken < 10 * Callers::kChangesAtOnce && !absl::IsResourceExhausted(bob->CancelJob(7))) ++taken;
  EXPECT_GE(taken, static_cast<int>(Callers::kChangesAtOnce));
  EXPECT_LT(taken, 10 * static_cast<int>(Callers::kChangesAtOnce));
  EXPECT_FALSE(absl::IsResourceExhausted(alice->CancelJob(7)));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(admin_->AddDevice("a").ok());
}

TEST_F(FleetTest, OnAFullDiskACallThatFailsIsToldInTheLogOnce) {
  auto owned = std::make_unique<StalledStore>();
  StalledStore& store = *owned;
  server_.reset();
  store_ = std::move(owned);
  StartServer("127.0.0.1:0");
  const CapturedLog log(LogFormat::kText);
  store.Fill();
  EXPECT_FALSE(admin_->AddDevice("a").ok());
  EXPECT_THAT(log.text(), HasSubstr("not audited: token "));
  EXPECT_EQ(log.text().find("not audited"), log.text().rfind("not audited")) << log.text();
}

TEST_F(FleetTest, PeersOfOursAgreeOnTls13AndNobodyOnLessThan12) {
  EXPECT_EQ(Dial(address(), 0)->version, "TLSv1.3");
  EXPECT_EQ(Dial(address(), TLS1_2_VERSION)->version, "TLSv1.2");
  EXPECT_FALSE(Dial(address(), TLS1_1_VERSION).ok());
  // And our clients, from the other end.
  const ServerDirectory directory = *OpenServerDirectory(dir());
  const PrivateKey key = *PrivateKey::FromPem(*ReadSmallFile(directory.key_path, Secrecy::kPrivate));
  OneHandshake other_end(*ReadSmallFile(directory.certificate_path, Secrecy::kPublic), key);
  auto client = *TunerClient::Connect(other_end.address(), {.call_timeout = absl::Seconds(2), .authority = authority_});
  EXPECT_FALSE(client->ListJobs().ok());
  client.reset();
  EXPECT_EQ(other_end.Version(), "TLSv1.3");
}

TEST_F(FleetTest, ARenewedCertificateIsTakenUpWithoutARestart) {
  const auto client = Client(admin_token_);
  ASSERT_TRUE(client->ListJobs().ok());
  const std::string before = Dial(address(), 0)->certificate;
  ASSERT_TRUE(RenewServerCertificate(dir(), absl::Now()).ok());
  const std::string renewed = ReadCertificate(*ReadSmallFile(dir() + "/server.crt", Secrecy::kPublic))->serial;
  const absl::Time give_up = absl::Now() + kPatience;
  std::string shown = before;
  while (shown == before && absl::Now() < give_up) shown = Dial(address(), 0)->certificate;
  EXPECT_EQ(ReadCertificate(shown)->serial, renewed);
  EXPECT_TRUE(client->ListJobs().ok()) << "connections that stand go on";
  EXPECT_TRUE(Client(admin_token_)->ListJobs().ok());
}

// It once aborted: a copy under way and a full disk leave such a file.
TEST_F(FleetTest, AServersProcessGoesOnWhenItsCertificateIsEmptied) {
  server_.reset();
  ServerProcess process;
  const absl::Status started = process.Start({.db = parent_.path() + "/records.db", .arguments = {"--dir", dir()}});
  ASSERT_TRUE(started.ok()) << started;
  const std::string path = dir() + "/server.crt", before = *ReadSmallFile(path, Secrecy::kPublic);
  ASSERT_TRUE(WriteWholeFile(path, "", Secrecy::kPublic, Existing::kReplace).ok());
  const absl::Time give_up = absl::Now() + kPatience;
  const auto told = [&] { return process.Errors().find("stays in use") != std::string::npos; };
  while (!told() && !process.EndsWithin(absl::ZeroDuration()) && absl::Now() < give_up) std::this_thread::yield();
  EXPECT_THAT(process.Errors(), HasSubstr("stays in use"));
  ASSERT_TRUE(process.running());
  EXPECT_EQ(ReadCertificate(Dial(process.address(), 0)->certificate)->serial, ReadCertificate(before)->serial);

  ASSERT_TRUE(WriteWholeFile(path, before, Secrecy::kPublic, Existing::kReplace).ok());
  ASSERT_TRUE(RenewServerCertificate(dir(), absl::Now()).ok());
  const std::string renewed = ReadCertificate(*ReadSmallFile(path, Secrecy::kPublic))->serial;
  const auto shown = [&] { return ReadCertificate(Dial(process.address(), 0)->certificate)->serial; };
  while (shown() != renewed && absl::Now() < give_up) std::this_thread::yield();
  EXPECT_EQ(shown(), renewed);
}

TEST_F(FleetTest, OnAUnixSocketTokensCountWithoutEncryption) {
  StartServer("unix:" + parent_.path() + "/socket");
  EXPECT_TRUE(Client(admin_token_)->ListJobs().ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Client("")->ListJobs().status()));
}

TEST_F(FleetTest, ATokenIsNotSentWhereOthersReadIt) {
  const auto client = TunerClient::Connect("tuner.example:9190", {.token = admin_token_});
  EXPECT_TRUE(absl::IsInvalidArgument(client.status()));
  EXPECT_THAT(Message(client.status()), HasSubstr("--ca"));
}

TEST(OpenServerTest, JobsBelongToWhoeverTheirClientsSayTheyAre) {
  const std::unique_ptr<Store> store = *OpenStore("memory:");
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  const auto server = *Server::Start(*store, Clock::System(), options);
  const auto as = [&](const std::string& identity) {
    return *TunerClient::Connect(server->address(), {.call_timeout = kPatience, .identity = identity});
  };
  const int64_t ones = *as("one")->SubmitJob(JobRequest()), nobodys = *as("")->SubmitJob(JobRequest());
  EXPECT_TRUE(absl::IsPermissionDenied(as("two")->CancelJob(ones)));
  EXPECT_TRUE(absl::IsPermissionDenied(as("")->CancelJob(ones)));
  EXPECT_TRUE(as("one")->CancelJob(ones).ok());
  EXPECT_TRUE(as("two")->CancelJob(nobodys).ok());
}

}  // namespace
}  // namespace temper
