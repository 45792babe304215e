#include "security/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/temporary_directory.h"
#include "tests/security/memory_access_store.h"
#include "tests/security/testing.h"

namespace temper {
namespace {

using ::testing::HasSubstr;

class GateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    clock_.Advance(absl::Hours(24 * 365 * 50));
    ASSERT_TRUE(InitServerDirectory(dir(), {}, clock_.Wall()).ok());
    admin_.bearer = *ReadTokenFile(dir() + "/admin.token");
    admin_.private_wire = true;
    Restart();
  }
  std::string dir() const { return parent_.path() + "/server"; }
  void Restart() { gate_ = *Gate::Open(store_, clock_, *OpenServerDirectory(dir())); }

  // A worker that joined with an invitation for the key.
  Credentials Joined(const std::string& device_key) {
    const auto joined = gate_->Join(gate_->Invite(device_key)->text, *PrivateKey::Generate()->CertificateRequest());
    Credentials credentials;
    credentials.certificate_pem = joined->certificate_pem;
    credentials.private_wire = true;
    return credentials;
  }
  Credentials Token(Scopes scopes, absl::Time expires = absl::InfiniteFuture()) {
    Credentials credentials;
    credentials.bearer = gate_->AddToken({"alice", scopes, {}, expires})->text;
    credentials.private_wire = true;
    return credentials;
  }
  absl::Status Try(const Credentials& credentials, Call call, const Subject& subject = {}) {
    return gate_->Admit(credentials, call, subject).status();
  }
  std::string Refusal(const Credentials& credentials, Call call, const Subject& subject = {}) {
    return std::string(Try(credentials, call, subject).message());
  }
  AuditRow LastAudit() { return store_.Audit(0, 1)->at(0); }

  TemporaryDirectory parent_ = *TemporaryDirectory::Make();
  FakeClock clock_;
  MemoryAccessStore store_;
  Credentials admin_;
  std::unique_ptr<Gate> gate_;
};

TEST_F(GateTest, TheFirstTokenIsAnAdmins) {
  EXPECT_TRUE(Try(admin_, Call::kAddToken).ok());
  EXPECT_EQ(gate_->Tokens().size(), 1u);
}

TEST_F(GateTest, NobodyKnownMayOnlyJoin) {
  EXPECT_TRUE(absl::IsUnauthenticated(Try({}, Call::kListJobs)));
  EXPECT_TRUE(absl::IsUnauthenticated(Try({"", "", "some identity", true}, Call::kRegister)));
  EXPECT_TRUE(Try({}, Call::kJoin).ok());
}

TEST_F(GateTest, AJoinedWorkerMeasuresForItsKeyAlone) {
  const Credentials worker = Joined("a");
  EXPECT_TRUE(Try(worker, Call::kRegister, {"a"}).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Try(worker, Call::kRegister, {"b"})));
  EXPECT_TRUE(absl::IsPermissionDenied(Try(worker, Call::kSubmitJob, {"a"})));
}

TEST_F(GateTest, AnInvitationCountsOnce) {
  const std::string invitation = gate_->Invite("a")->text;
  const std::string request = *PrivateKey::Generate()->CertificateRequest();
  EXPECT_TRUE(gate_->Join(invitation, request).ok());
  EXPECT_THAT(Message(gate_->Join(invitation, request)), HasSubstr("was used"));
  Restart();
  EXPECT_THAT(Message(gate_->Join(invitation, request)), HasSubstr("was used"));
}

TEST_F(GateTest, OfManyWhoUseAnInvitationAtOnceOneGetsIn) {
  const std::string invitation = gate_->Invite("a")->text;
  const std::string request = *PrivateKey::Generate()->CertificateRequest();
  std::atomic<int> in = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { in += gate_->Join(invitation, request).ok() ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(in, 1);
}

TEST_F(GateTest, ABadRequestDoesNotUseAnInvitationUp) {
  const std::string invitation = gate_->Invite("a")->text;
  EXPECT_TRUE(absl::IsInvalidArgument(gate_->Join(invitation, "no request").status()));
  EXPECT_TRUE(gate_->Join(invitation, *PrivateKey::Generate()->CertificateRequest()).ok());
}

TEST_F(GateTest, AWorkersCertificateIsRenewedBeforeItEndsAndAgainBeforeThatEnds) {
  Credentials worker = Joined("a");
  EXPECT_THAT(Message(gate_->Renew(worker.certificate_pem)), HasSubstr("is renewed from 20"));
  for (int life = 0; life < 3; ++life) {
    clock_.Advance(0.9 * kWorkerLifetime);
    const auto renewed = gate_->Renew(worker.certificate_pem);
    ASSERT_TRUE(renewed.ok()) << renewed.status();
    EXPECT_EQ(*gate_->Renew(worker.certificate_pem), *renewed) << "as when the answer was lost";
    EXPECT_EQ(LastAudit().call, "Renew");
    EXPECT_EQ(LastAudit().subject, "a");
    EXPECT_TRUE(Try(worker, Call::kSync).ok()) << "both are good meanwhile";
    EXPECT_EQ(ReadCertificate(*renewed)->public_key, ReadCertificate(worker.certificate_pem)->public_key);
    worker.certificate_pem = *renewed;
    EXPECT_TRUE(Try(worker, Call::kRegister, {"a"}).ok());
    EXPECT_TRUE(absl::IsPermissionDenied(Try(worker, Call::kRegister, {"b"})));
    EXPECT_TRUE(absl::IsFailedPrecondition(gate_->Renew(worker.certificate_pem).status())) << "not at once again";
    Restart();
  }
}

TEST_F(GateTest, ARenewedCertificateIsRevokedLikeTheFirstAndARevokedOneIsNotRenewed) {
  const Credentials first = Joined("a");
  clock_.Advance(0.9 * kWorkerLifetime);
  Credentials second = first;
  second.certificate_pem = *gate_->Renew(first.certificate_pem);
  EXPECT_EQ(*gate_->Revoke("a"), 2);
  for (const Credentials& worker : {first, second}) {
    EXPECT_EQ(Refusal(worker, Call::kRenew), "the certificate was revoked");
  }
  EXPECT_TRUE(absl::IsUnauthenticated(gate_->Renew(first.certificate_pem).status()))
      << "as when it was admitted before";
  EXPECT_TRUE(absl::IsFailedPrecondition(gate_->Renew("").status())) << "a token's bearer has none";
}

// As after a restore of a snapshot that is older than the certificate.
TEST_F(GateTest, ACertificateThatIsNotKnownHereIsNotRenewed) {
  const std::vector<std::string> keys = {"a"};
  const auto signed_once = OpenServerDirectory(dir())->authority.SignWorker(
      *PrivateKey::Generate()->CertificateRequest(), keys, {clock_.Wall(), clock_.Wall() + kWorkerLifetime});
  ASSERT_TRUE(signed_once.ok()) << signed_once.status();
  clock_.Advance(0.9 * kWorkerLifetime);
  for (int again = 0; again < 2; ++again) {
    const auto renewed = gate_->Renew(*signed_once);
    EXPECT_TRUE(absl::IsUnauthenticated(renewed.status())) << renewed.status();
    EXPECT_EQ(Message(renewed), "the certificate is not known here; join again");
  }
  EXPECT_FALSE(gate_->Revoke("a").ok()) << "nothing was kept of it";
}

TEST_F(GateTest, InvitationsExpireAndOthersAreUnknown) {
  const std::string invitation = gate_->Invite("a")->text;
  const std::string request = *PrivateKey::Generate()->CertificateRequest();
  EXPECT_THAT(Message(gate_->Join(MintInvitation("a", std::string(64, 'f'), clock_.Wall()).text, request)),
              HasSubstr("not known here"));
  clock_.Advance(kInvitationLifetime);
  EXPECT_THAT(Message(gate_->Join(invitation, request)), HasSubstr("has expired"));
  EXPECT_TRUE(absl::IsInvalidArgument(gate_->Invite("a,b").status()));
}

TEST_F(GateTest, APrincipalStandsUntilItsTokenExpires) {
  const Credentials token = Token({Scope::kRead}, clock_.Wall() + absl::Minutes(5));
  const Principal principal = *gate_->Admit(token, Call::kListJobs, {});
  const Principal lasting = *gate_->Admit(Token({Scope::kRead}), Call::kListJobs, {});
  EXPECT_TRUE(gate_->StillStands(principal));
  clock_.Advance(absl::Minutes(5));
  EXPECT_FALSE(gate_->StillStands(principal));
  EXPECT_TRUE(gate_->StillStands(lasting));
}

TEST_F(GateTest, AKnownDeviceDoesNotWaitForWhatAnAdminHasStored) {
  ASSERT_TRUE(*gate_->MayServe("a", "fingerprint"));
  ASSERT_FALSE(*gate_->MayServe("a", "another"));
  std::promise<void> writes, go_on;
  store_.before_writes = [&] {
    writes.set_value();
    go_on.get_future().wait();
  };
  std::thread admin([&] { EXPECT_TRUE(gate_->Approve("a", "another").ok()); });
  writes.get_future().wait();
  auto known = std::async(std::launch::async, [&] { return *gate_->MayServe("a", "fingerprint"); });
  EXPECT_EQ(known.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  go_on.set_value();
  admin.join();
  EXPECT_TRUE(known.get());
}

TEST_F(GateTest, ARevokedWorkersNextCallIsRefused) {
  const Credentials worker = Joined("a"), twin = Joined("a"), other = Joined("b");
  const Principal principal = *gate_->Admit(worker, Call::kSync, {});
  int told = 0;
  gate_->OnRevocation([&] { told += gate_->StillStands(principal) ? 0 : 1; });
  const std::string invitation = gate_->Invite("a")->text;
  const auto revoked = gate_->Revoke("a");
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_EQ(*revoked, 2);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(Refusal(worker, Call::kSync), "the certificate was revoked");
  EXPECT_EQ(Refusal(twin, Call::kSync), "the certificate was revoked");
  EXPECT_TRUE(Try(other, Call::kSync).ok());
  EXPECT_FALSE(gate_->Join(invitation, *PrivateKey::Generate()->CertificateRequest()).ok());
  Restart();
  EXPECT_EQ(Refusal(worker, Call::kSync), "the certificate was revoked");
  EXPECT_TRUE(Try(other, Call::kSync).ok());
}

TEST_F(GateTest, RevokingHoldsEvenWhereTheStoreFails) {
  const Credentials worker = Joined("a"), reader = Token({Scope::kRead});
  const std::string id = gate_->Tokens().back().owner == "alice" ? gate_->Tokens().back().id : gate_->Tokens()[0].id;
  store_.failure = absl::UnavailableError("disk full");
  EXPECT_TRUE(absl::IsUnavailable(gate_->Revoke("a").status()));
  EXPECT_TRUE(absl::IsUnavailable(gate_->RevokeToken(id)));
  EXPECT_FALSE(Try(worker, Call::kSync).ok());
  EXPECT_FALSE(Try(reader, Call::kListJobs).ok());
}

TEST_F(GateTest, ARevocationThatCouldNotBeStoredIsStoredWhenItIsAskedForAgain) {
  const Credentials worker = Joined("a");
  const std::string invitation = gate_->Invite("a")->text;
  ASSERT_TRUE(*gate_->MayServe("a", "first"));
  store_.failure = absl::UnavailableError("disk full");
  EXPECT_TRUE(absl::IsUnavailable(gate_->Revoke("a").status()));
  EXPECT_TRUE(absl::IsUnavailable(gate_->Revoke("a").status())) << "and not that there is nothing to revoke";
  store_.failure = absl::OkStatus();
  EXPECT_EQ(*gate_->Revoke("a"), 1);
  Restart();
  EXPECT_EQ(Refusal(worker, Call::kSync), "the certificate was revoked");
  EXPECT_FALSE(gate_->Join(invitation, *PrivateKey::Generate()->CertificateRequest()).ok());
  EXPECT_FALSE(*gate_->MayServe("a", "first"));
}

TEST_F(GateTest, WhatIsNotThereCanNotBeRevoked) {
  EXPECT_TRUE(absl::IsNotFound(gate_->Revoke("a").status()));
  EXPECT_TRUE(absl::IsNotFound(gate_->RevokeToken("none")));
}

TEST_F(GateTest, CertificatesExpire) {
  const Credentials worker = Joined("a");
  clock_.Advance(kWorkerLifetime - absl::Hours(1));
  EXPECT_TRUE(Try(worker, Call::kSync).ok());
  clock_.Advance(absl::Hours(1));
  EXPECT_THAT(Refusal(worker, Call::kSync), HasSubstr("the certificate expired on"));
}

TEST_F(GateTest, CertificatesOfOthersAreRefused) {
  const auto other =
      CertificateAuthority::Create(*PrivateKey::Generate(), {clock_.Wall(), clock_.Wall() + kWorkerLifetime});
  const auto ours = OpenServerDirectory(dir())->authority;
  const std::vector<std::string> keys = {"a"};
  const std::string request = *PrivateKey::Generate()->CertificateRequest();
  const Validity validity = {clock_.Wall(), clock_.Wall() + kWorkerLifetime};
  EXPECT_THAT(Refusal({*other->SignWorker(request, keys, validity), "", "", true}, Call::kSync),
              HasSubstr("not one of this server's workers"));
  EXPECT_EQ(Refusal({*ours.SignWorker(request, keys, validity), "", "", true}, Call::kSync),
            "the certificate is not known here; join again");
  EXPECT_FALSE(Try({"no certificate", "", "", true}, Call::kSync).ok());
}

TEST_F(GateTest, TokensCarryTheirScopesAndOwner) {
  const Credentials submitter = Token({Scope::kSubmit});
  EXPECT_EQ(gate_->Admit(submitter, Call::kSubmitJob, {})->owner, "alice");
  EXPECT_TRUE(absl::IsPermissionDenied(Try(submitter, Call::kListJobs)));
  EXPECT_TRUE(Try(submitter, Call::kCancelJob, {"", "alice"}).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Try(submitter, Call::kCancelJob, {"", "bob"})));
}

TEST_F(GateTest, ExpiredRevokedAndUnknownTokensAreRefused) {
  const Credentials reader = Token({Scope::kRead}, clock_.Wall() + absl::Hours(1));
  EXPECT_TRUE(Try(reader, Call::kListJobs).ok());
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(Refusal(reader, Call::kListJobs), "the token has expired");
  const Credentials revoked = Token({Scope::kRead});
  ASSERT_TRUE(gate_->RevokeToken(ParseToken(revoked.bearer)->id).ok());
  EXPECT_EQ(Refusal(revoked, Call::kListJobs), "the token was revoked");
  Restart();
  EXPECT_EQ(Refusal(revoked, Call::kListJobs), "the token was revoked");
  const std::string foreign = MintToken({"mallory", {Scope::kAdmin}}, clock_.Wall()).text;
  EXPECT_EQ(Refusal({"", foreign, "", true}, Call::kListJobs), "the token is not known here");
  EXPECT_FALSE(Try({"", "tmpr_", "", true}, Call::kListJobs).ok());
  EXPECT_FALSE(Try({"", gate_->Invite("a")->text, "", true}, Call::kListJobs).ok());
}

TEST_F(GateTest, AnOwnerMaySubmitForAsLongAsOneOfItsTokensMay) {
  const auto add = [&](const Scopes& scopes, const std::vector<std::string>& keys,
                       absl::Time expires = absl::InfiniteFuture()) {
    return gate_->AddToken({"alice", scopes, keys, expires})->row.id;
  };
  EXPECT_FALSE(gate_->MaySubmit("alice", "a")) << "it has none";
  const std::string any = add({Scope::kSubmit}, {}), a = add({Scope::kSubmit}, {"a"});
  add({Scope::kRead}, {});
  add({Scope::kSubmit}, {}, clock_.Wall() + absl::Minutes(5));
  gate_->Invite("a").IgnoreError();
  ASSERT_TRUE(gate_->RevokeToken(any).ok());
  EXPECT_TRUE(gate_->MaySubmit("alice", "b")) << "the one that expires may";
  clock_.Advance(absl::Minutes(5));
  EXPECT_FALSE(gate_->MaySubmit("alice", "b"));
  EXPECT_TRUE(gate_->MaySubmit("alice", "a"));
  EXPECT_FALSE(gate_->MaySubmit("bob", "a"));
  EXPECT_EQ(gate_->OwnerOf(a), "alice");
  EXPECT_EQ(gate_->OwnerOf("none"), "");
}

TEST_F(GateTest, TheAdminsFirstTokenStaysRevokedOverARestart) {
  ASSERT_TRUE(gate_->RevokeToken(ParseToken(admin_.bearer)->id).ok());
  Restart();
  EXPECT_EQ(Refusal(admin_, Call::kListTokens), "the token was revoked");
}

TEST_F(GateTest, ATokenOnAWireThatOthersReadIsRefused) {
  Credentials exposed = admin_;
  exposed.private_wire = false;
  EXPECT_THAT(Refusal(exposed, Call::kListJobs), HasSubstr("over a wire that others can read"));
}

TEST_F(GateTest, TokensThatWouldBeUselessAreNotMade) {
  EXPECT_FALSE(gate_->AddToken({"", {Scope::kRead}}).ok());
  EXPECT_FALSE(gate_->AddToken({"alice", {Scope::kRead}, {"a,b"}}).ok());
  EXPECT_FALSE(gate_->AddToken({"alice", {}}).ok());
  EXPECT_FALSE(gate_->AddToken({"alice", {Scope::kRead}, {}, clock_.Wall()}).ok());
}

TEST_F(GateTest, ANewFingerprintUnderAKnownKeyWaitsForApproval) {
  EXPECT_TRUE(*gate_->MayServe("a", "first"));
  EXPECT_TRUE(*gate_->MayServe("b", "other"));
  EXPECT_FALSE(*gate_->MayServe("a", "second"));
  EXPECT_FALSE(*gate_->MayServe("a", "second")) << "asking twice is no approval";
  EXPECT_TRUE(*gate_->MayServe("a", "first"));
  Restart();
  EXPECT_FALSE(*gate_->MayServe("a", "second"));
  EXPECT_EQ(*gate_->Approve("a", "second"), 1);
  EXPECT_TRUE(*gate_->MayServe("a", "second"));
  EXPECT_TRUE(absl::IsNotFound(gate_->Approve("a", "second").status()));
  EXPECT_TRUE(absl::IsNotFound(gate_->Approve("a", "third").status()));
}

TEST_F(GateTest, ADeviceThatWasMeasuredAgainIsNoOtherOne) {
  EXPECT_TRUE(*gate_->MayServe("a", "EPYC 9655; 16 threads; L2 1 MiB; 1.2e+02 GFLOP/s; 35 GB/s"));
  EXPECT_TRUE(*gate_->MayServe("a", "EPYC 9655; 16 threads; L2 1 MiB; 1.3e+02 GFLOP/s; 31 GB/s"));
  EXPECT_FALSE(*gate_->MayServe("a", "EPYC 9655; 8 threads; L2 1 MiB; 1.2e+02 GFLOP/s; 35 GB/s"));
  EXPECT_EQ(*gate_->Approve("a", "EPYC 9655; 8 threads; L2 1 MiB; 70 GFLOP/s; 35 GB/s"), 1);
  EXPECT_TRUE(*gate_->MayServe("a", "EPYC 9655; 8 threads; L2 1 MiB; 65 GFLOP/s; 30 GB/s"));
}

TEST_F(GateTest, OnlySoManyDevicesWaitForAKey) {
  ASSERT_TRUE(*gate_->MayServe("a", "first"));
  for (int i = 0; i < Gate::kMostPending; ++i) ASSERT_FALSE(*gate_->MayServe("a", absl::StrCat("other ", i)));
  EXPECT_TRUE(absl::IsResourceExhausted(gate_->MayServe("a", "one more").status()));
  EXPECT_EQ(gate_->Devices().size(), 1u + Gate::kMostPending);
  EXPECT_FALSE(*gate_->MayServe("a", "other 0")) << "who waits already goes on waiting";
  EXPECT_TRUE(*gate_->MayServe("a", "first"));
  EXPECT_TRUE(*gate_->MayServe("b", "first")) << "of another key";
  EXPECT_EQ(*gate_->Approve("a", ""), Gate::kMostPending);
  EXPECT_FALSE(*gate_->MayServe("a", "one more")) << "there is room again";
}

TEST_F(GateTest, JudgingWritesNothing) {
  int writes = 0;
  store_.before_writes = [&] { ++writes; };
  const Gate::Judgement refused = gate_->Judge({}, Call::kCancelJob, {"", "alice", "job 7"});
  EXPECT_TRUE(absl::IsUnauthenticated(refused.caller.status()));
  const Gate::Judgement done = gate_->Judge(admin_, Call::kRevokeDevice, {"a"});
  EXPECT_TRUE(done.caller.ok());
  EXPECT_EQ(writes, 0);
  ASSERT_TRUE(refused.to_audit.has_value() && done.to_audit.has_value());
  EXPECT_EQ(refused.to_audit->verdict, "refused");
  EXPECT_EQ(done.to_audit->verdict, "allowed");
  EXPECT_FALSE(gate_->Judge(admin_, Call::kListJobs, {}).to_audit.has_value()) << "reading is not audited";
}

TEST_F(GateTest, AllThatWaitForAKeyAreApprovedAtOnce) {
  EXPECT_TRUE(*gate_->MayServe("a", "1"));
  EXPECT_FALSE(*gate_->MayServe("a", "2"));
  EXPECT_FALSE(*gate_->MayServe("a", "3"));
  EXPECT_EQ(*gate_->Approve("a", ""), 2);
  EXPECT_TRUE(*gate_->MayServe("a", "3"));
}

TEST_F(GateTest, OfAKeyThatWasRevokedNobodyMayServeUnlessApproved) {
  Joined("a");
  EXPECT_TRUE(*gate_->MayServe("a", "first"));
  ASSERT_TRUE(gate_->Revoke("a").ok());
  for (int life = 0; life < 2; ++life) {
    EXPECT_FALSE(*gate_->MayServe("a", "second"));
    EXPECT_FALSE(*gate_->MayServe("a", "first"));
    EXPECT_FALSE(*gate_->MayServe("a", "third")) << "though no row of the key is revoked by now";
    Restart();
  }
  EXPECT_EQ(*gate_->Approve("a", "second"), 1);
  EXPECT_TRUE(*gate_->MayServe("a", "second"));
  EXPECT_FALSE(*gate_->MayServe("a", "first"));
}

TEST_F(GateTest, AKeyMayBeRevokedBeforeAnybodyServedIt) {
  Joined("a");
  ASSERT_TRUE(gate_->Revoke("a").ok());
  Restart();
  EXPECT_FALSE(*gate_->MayServe("a", "first"));
  EXPECT_TRUE(*gate_->MayServe("b", "first"));
}

TEST_F(GateTest, NobodyFillsTheStoreWithKeysOfItsOwnMaking) {
  for (int i = 0; i < Gate::kMostOpened; ++i) ASSERT_TRUE(*gate_->MayServe(absl::StrCat("k", i), "f", "token 1a"));
  EXPECT_THAT(Message(gate_->MayServe("one more", "f", "token 1a")), HasSubstr("with its token 1a 1000 new devices"));
  EXPECT_TRUE(*gate_->MayServe("one more", "f", "token 2b"));
  EXPECT_TRUE(*gate_->MayServe("k7", "f", "token 1a")) << "who is known goes on";
}

TEST_F(GateTest, RefusalsAndChangesAreAudited) {
  EXPECT_FALSE(Try({}, Call::kCancelJob, {"", "alice", "job 7"}).ok());
  EXPECT_EQ(LastAudit().verdict, "refused");
  EXPECT_EQ(LastAudit().principal, "a caller without a name");
  EXPECT_EQ(LastAudit().subject, "job 7");
  EXPECT_TRUE(Try(admin_, Call::kRevokeDevice, {"a"}).ok());
  EXPECT_EQ(LastAudit().verdict, "allowed");
  EXPECT_THAT(LastAudit().principal, HasSubstr("(admin)"));
  EXPECT_EQ(LastAudit().subject, "a");
  EXPECT_TRUE(Try(admin_, Call::kListJobs).ok());
  EXPECT_EQ(LastAudit().call, "RevokeDevice") << "reading is not audited";
  const std::string foreign = MintToken({"mallory", {Scope::kAdmin}}, clock_.Wall()).text;
  EXPECT_FALSE(Try({"", foreign, "", true}, Call::kListJobs).ok());
  EXPECT_EQ(LastAudit().principal, "token " + ParseToken(foreign)->id);
  EXPECT_EQ(gate_->ListAudit(0, 10)->size(), 3u);
}

TEST_F(GateTest, JoiningIsAuditedByWhatCameOfIt) {
  EXPECT_FALSE(gate_->Join("no invitation", "").ok());
  EXPECT_EQ(LastAudit().verdict, "refused");
  Joined("a");
  EXPECT_EQ(LastAudit().verdict, "allowed");
  EXPECT_EQ(LastAudit().subject, "a");
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(gate_->Join("no invitation", "").ok());
  EXPECT_LE(store_.Audit(0, 1000)->size(), 1u + Audit::kRefusalsAtOnce) << "strangers can not fill the audit";
}

TEST_F(GateTest, AnOpenServerTakesEverybodyAsTheySayTheyAre) {
  const std::unique_ptr<Gate> open = *Gate::Open(store_, clock_, std::nullopt);
  EXPECT_FALSE(open->initialised());
  const auto one = open->Admit({"", "", "one", false}, Call::kDrain, {});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_TRUE(open->Admit({"", "", "one", false}, Call::kCancelJob, {"", one->owner}).ok());
  EXPECT_FALSE(open->Admit({"", "", "two", false}, Call::kCancelJob, {"", one->owner}).ok());
  EXPECT_TRUE(*open->MayServe("a", "first"));
  EXPECT_TRUE(*open->MayServe("a", "second"));
  EXPECT_TRUE(open->StillStands(*one));
}

TEST_F(GateTest, AnOpenServerPassesOverTokensButNotWhereTheyLeak) {
  const std::unique_ptr<Gate> open = *Gate::Open(store_, clock_, std::nullopt);
  EXPECT_TRUE(open->Admit({"", "whatever", "one", true}, Call::kListJobs, {}).ok());
  EXPECT_FALSE(open->Admit({"", "whatever", "one", false}, Call::kListJobs, {}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(open->Invite("a").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(open->AddToken({"alice", {Scope::kRead}}).status()));
}

}  // namespace
}  // namespace temper
