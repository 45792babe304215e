#include "security/rights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace temper {
namespace {

using ::testing::HasSubstr;

Principal Bearer(Scopes scopes, std::string owner = "alice") {
  Principal principal;
  principal.kind = Principal::Kind::kToken;
  principal.id = "1a";
  principal.owner = std::move(owner);
  principal.scopes = scopes;
  principal.every_key = true;
  return principal;
}

Principal Worker(std::vector<std::string> keys) {
  Principal principal;
  principal.kind = Principal::Kind::kCertificate;
  principal.id = "5e71a1";
  principal.scopes = {Scope::kMeasure};
  principal.device_keys = std::move(keys);
  return principal;
}

absl::StatusCode Verdict(const Principal& principal, Call call, const Subject& subject = {}) {
  return Allowed(principal, call, subject).code();
}
constexpr absl::StatusCode kOk = absl::StatusCode::kOk, kDenied = absl::StatusCode::kPermissionDenied,
                           kWho = absl::StatusCode::kUnauthenticated;

TEST(RightsTest, TheTableIsInTheOrderOfTheCalls) {
  for (size_t i = 0; i < Rights().size(); ++i) {
    EXPECT_EQ(Rights()[i].call, static_cast<Call>(i)) << Rights()[i].name;
  }
  EXPECT_EQ(Rights().back().call, Call::kListAudit);
}

TEST(RightsTest, TheDocumentTellsTheSameTable) {
  std::ifstream in(TEMPER_SOURCE_DIR "/docs/security.md");
  std::string told, line;
  while (std::getline(in, line) && line != "|---|---|---|") {
  }
  while (std::getline(in, line) && line.starts_with("|")) told += line + "\n";
  std::string held;
  for (const Right& right : Rights()) {
    const char* also = "";
    switch (right.about) {
      case About::kNothing:
        break;
      case About::kDeviceKey:
        also = "the device key";
        break;
      case About::kJob:
        also = "the job is its own";
        break;
    }
    held +=
        std::string("| ") + right.name + " | " + (right.scope ? Name(*right.scope) : "anybody") + " | " + also + " |\n";
  }
  EXPECT_EQ(told, held);
}

TEST(RightsTest, EachCallAsksForItsScopeAndAnAdminHasAll) {
  for (const Right& right : Rights()) {
    EXPECT_EQ(Verdict(Bearer({Scope::kAdmin}), right.call), kOk) << right.name;
    EXPECT_EQ(Verdict(Principal(), right.call), right.scope ? kWho : kOk) << right.name;
    for (const Scope scope : {Scope::kRead, Scope::kSubmit, Scope::kMeasure}) {
      EXPECT_EQ(Verdict(Bearer({scope}), right.call), !right.scope || *right.scope == scope ? kOk : kDenied)
          << right.name << " with " << Name(scope);
    }
  }
}

TEST(RightsTest, AWorkersCertificateIsForMeasuringItsDevicesAlone) {
  const Principal worker = Worker({"a", "b"});
  EXPECT_EQ(Verdict(worker, Call::kRegister, {"a"}), kOk);
  EXPECT_EQ(Verdict(worker, Call::kRegister, {"b"}), kOk);
  EXPECT_EQ(Verdict(worker, Call::kRegister, {"c"}), kDenied);
  EXPECT_EQ(Verdict(Worker({}), Call::kRegister, {"a"}), kDenied);
  for (const Right& right : Rights()) {
    const bool measures = !right.scope || *right.scope == Scope::kMeasure;
    EXPECT_EQ(Verdict(worker, right.call), measures ? kOk : kDenied) << right.name;
  }
}

TEST(RightsTest, ATokenMayBeBoundToDevices) {
  Principal bound = Bearer({Scope::kSubmit});
  bound.every_key = false;
  bound.device_keys = {"a"};
  EXPECT_EQ(Verdict(bound, Call::kSubmitJob, {"a"}), kOk);
  EXPECT_EQ(Verdict(bound, Call::kSubmitJob, {"b"}), kDenied);
}

TEST(RightsTest, CancelAndPriorityBelongToTheOwnerOrAnAdmin) {
  for (const Call call : {Call::kCancelJob, Call::kSetPriority}) {
    const Subject of_alice = {"", "alice"}, of_nobody = {};
    EXPECT_EQ(Verdict(Bearer({Scope::kSubmit}, "alice"), call, of_alice), kOk);
    EXPECT_EQ(Verdict(Bearer({Scope::kSubmit}, "bob"), call, of_alice), kDenied);
    EXPECT_EQ(Verdict(Bearer({Scope::kAdmin}, "bob"), call, of_alice), kOk);
    EXPECT_EQ(Verdict(Bearer({Scope::kRead}, "alice"), call, of_alice), kDenied);
    EXPECT_EQ(Verdict(Bearer({Scope::kSubmit}, "bob"), call, of_nobody), kOk);
  }
}

TEST(RightsTest, WhoeverReachesAnOpenServerMayDoAllButWithAnothersJobs) {
  const Principal one = OpenPrincipal("one"), other = OpenPrincipal("other"), nameless = OpenPrincipal("");
  for (const Principal& principal : {one, nameless}) {
    for (const Right& right : Rights()) EXPECT_EQ(Verdict(principal, right.call, {"any"}), kOk) << right.name;
  }
  for (const Call call : {Call::kCancelJob, Call::kSetPriority}) {
    EXPECT_EQ(Verdict(one, call, {"", one.owner}), kOk);
    EXPECT_EQ(Verdict(other, call, {"", one.owner}), kDenied);
    EXPECT_EQ(Verdict(nameless, call, {"", one.owner}), kDenied);
    EXPECT_EQ(Verdict(other, call, {"", nameless.owner}), kOk) << "a job of nobody is everybody's";
  }
}

TEST(RightsTest, AnOwnersNameDoesNotTellItsIdentity) {
  const std::string identity = "0123456789abcdef0123456789abcdef";
  const Principal principal = OpenPrincipal(identity);
  EXPECT_EQ(principal.owner.find(identity.substr(0, 8)), std::string::npos);
  EXPECT_NE(OpenPrincipal(principal.owner).owner, principal.owner) << "who reads the owner is not taken for it";
}

TEST(RightsTest, RefusalsAreOneClearLine) {
  EXPECT_EQ(Allowed(Principal(), Call::kListJobs, {}).message(), "ListJobs needs a token with the scope read");
  EXPECT_EQ(Allowed(Principal(), Call::kRegister, {}).message(),
            "Register needs a token with the scope measure, or a worker's certificate");
  EXPECT_EQ(Allowed(Bearer({Scope::kRead}), Call::kAddToken, {}).message(),
            "AddToken needs the scope admin, which token 1a (alice) lacks");
  EXPECT_EQ(Allowed(Bearer({Scope::kSubmit}, "bob"), Call::kCancelJob, {"", "alice"}).message(),
            "the job belongs to alice, and token 1a (bob) is neither that nor an admin");
  EXPECT_EQ(Allowed(Worker({"a"}), Call::kRegister, {"b"}).message(),
            "certificate 5e71a1 has no right to the device key 'b'");
}

}  // namespace
}  // namespace temper
