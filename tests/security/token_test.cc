#include "security/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/temporary_directory.h"
#include "security/files.h"
#include "security/join.h"
#include "tests/security/testing.h"

namespace temper {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ScopesTest, AreReadAndPrintedInOneOrder) {
  const auto scopes = Scopes::Parse(" submit,read ");
  ASSERT_TRUE(scopes.ok()) << scopes.status();
  EXPECT_EQ(scopes->Text(), "read,submit");
  EXPECT_TRUE(scopes->Has(Scope::kRead));
  EXPECT_FALSE(scopes->Has(Scope::kMeasure));
  EXPECT_FALSE(scopes->Has(Scope::kAdmin));
}

TEST(ScopesTest, AnAdminHasAll) {
  const Scopes admin = {Scope::kAdmin};
  for (const Scope scope : {Scope::kRead, Scope::kSubmit, Scope::kMeasure, Scope::kAdmin}) {
    EXPECT_TRUE(admin.Has(scope)) << Name(scope);
  }
  EXPECT_EQ(admin.Text(), "admin");
}

TEST(ScopesTest, OtherWordsAreRefused) {
  for (const char* text : {"", ",", "write", "read,", "read;submit", "read,read", "ADMIN", "join"}) {
    const bool fine = std::string(text) == "read,";  // an end without a word behind it
    EXPECT_EQ(Scopes::Parse(text).ok(), fine) << text;
  }
}

TEST(TokenTest, IsLetInByItsTextAlone) {
  const MintedToken minted = MintToken({"alice", {Scope::kRead}, {"a", "b"}}, kNow);
  EXPECT_EQ(minted.text.size(), 5u + 16 + 1 + 43);
  EXPECT_EQ(minted.row.owner, "alice");
  EXPECT_EQ(minted.row.scopes, "read");
  EXPECT_THAT(SplitKeys(minted.row.keys), ElementsAre("a", "b"));
  EXPECT_THAT(SplitKeys(""), IsEmpty());
  const auto presented = ParseToken(minted.text);
  ASSERT_TRUE(presented.ok()) << presented.status();
  EXPECT_TRUE(CheckToken(minted.row, *presented, kNow).ok());
}

TEST(TokenTest, TheSecretIsNotKept) {
  const MintedToken minted = MintToken({"alice", {Scope::kRead}}, kNow);
  const std::string secret = ParseToken(minted.text)->secret;
  for (const std::string& kept : {minted.row.id, minted.row.hash, minted.row.owner, minted.row.keys}) {
    EXPECT_EQ(kept.find(secret), std::string::npos);
  }
  EXPECT_EQ(minted.row.hash.size(), 64u);
  EXPECT_NE(MintToken({"alice", {Scope::kRead}}, kNow).row.hash, minted.row.hash);
}

TEST(TokenTest, AnotherSecretIsRefused) {
  const MintedToken minted = MintToken({"alice", {Scope::kRead}}, kNow);
  const PresentedToken right = *ParseToken(minted.text);
  for (size_t i = 0; i < right.secret.size(); ++i) {
    PresentedToken wrong = right;
    wrong.secret[i] = wrong.secret[i] == 'A' ? 'B' : 'A';
    EXPECT_EQ(Message(CheckToken(minted.row, wrong, kNow)), "the token is not known here");
  }
  EXPECT_EQ(Message(CheckToken(TokenRow(), right, kNow)), "the token is not known here");
}

TEST(TokenTest, RevokedAndExpiredOnesAreRefusedEachInItsOwnWords) {
  MintedToken minted = MintToken({"alice", {Scope::kRead}, {}, kNow + absl::Hours(1)}, kNow);
  const PresentedToken presented = *ParseToken(minted.text);
  EXPECT_TRUE(CheckToken(minted.row, presented, kNow + absl::Minutes(59)).ok());
  EXPECT_EQ(Message(CheckToken(minted.row, presented, kNow + absl::Hours(1))), "the token has expired");
  minted.row.revoked = true;
  EXPECT_EQ(Message(CheckToken(minted.row, presented, kNow)), "the token was revoked");
}

TEST(TokenTest, OtherTextsAreRefused) {
  const std::string text = MintToken({"alice", {Scope::kRead}}, kNow).text;
  for (const std::string& bad : {std::string(), std::string("tmpr_"), text.substr(1), text + "x",
                                 text.substr(0, text.size() - 1), "x" + text, std::string(text.size(), '_')}) {
    EXPECT_EQ(ParseToken(bad).status().code(), absl::StatusCode::kUnauthenticated) << bad;
  }
}

TEST(TokenFileTest, ReadsAPrivateFile) {
  const TemporaryDirectory dir = *TemporaryDirectory::Make();
  const std::string path = dir.path() + "/token";
  const std::string text = MintToken({"alice", {Scope::kRead}}, kNow).text;
  ASSERT_TRUE(WriteWholeFile(path, text + "\n", Secrecy::kPrivate, Existing::kRefuse).ok());
  EXPECT_EQ(*ReadTokenFile(path), text);
  chmod(path.c_str(), 0644);
  EXPECT_THAT(Message(ReadTokenFile(path).status()), HasSubstr("chmod 600"));
  ASSERT_TRUE(WriteWholeFile(path, "something else", Secrecy::kPrivate, Existing::kReplace).ok());
  EXPECT_THAT(Message(ReadTokenFile(path).status()), HasSubstr("holds no token"));
}

TEST(InvitationTest, CarriesItsAuthority) {
  const std::string fingerprint(64, 'f');
  const MintedToken minted = MintInvitation("epyc", fingerprint, kNow);
  EXPECT_EQ(minted.row.keys, "epyc");
  EXPECT_EQ(minted.row.scopes, kInvitationScope);
  const auto read = ParseInvitation(minted.text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->authority_fingerprint, fingerprint);
  EXPECT_TRUE(CheckInvitation(minted.row, read->token, kNow).ok());
}

TEST(InvitationTest, IsRefusedWhenUsedExpiredOrWrong) {
  MintedToken minted = MintInvitation("epyc", std::string(64, 'f'), kNow);
  const PresentedToken right = ParseInvitation(minted.text)->token;
  EXPECT_THAT(Message(CheckInvitation(minted.row, right, kNow + kInvitationLifetime)), HasSubstr("has expired"));
  PresentedToken wrong = right;
  wrong.secret[7] ^= 1;
  EXPECT_THAT(Message(CheckInvitation(minted.row, wrong, kNow)), HasSubstr("not known here"));
  minted.row.revoked = true;
  EXPECT_THAT(Message(CheckInvitation(minted.row, right, kNow)), HasSubstr("was used"));
}

TEST(InvitationTest, IsNoTokenAndATokenIsNoInvitation) {
  const MintedToken token = MintToken({"alice", {Scope::kAdmin}}, kNow);
  const MintedToken invitation = MintInvitation("epyc", std::string(64, 'f'), kNow);
  EXPECT_FALSE(ParseToken(invitation.text).ok());
  EXPECT_FALSE(ParseInvitation(token.text).ok());
  const PresentedToken presented = *ParseToken(token.text);
  EXPECT_FALSE(CheckInvitation(token.row, presented, kNow).ok());
  for (const std::string& bad : {std::string(), std::string("tmpr-join_"), invitation.text.substr(1),
                                 invitation.text + "f", std::string(300, '_')}) {
    EXPECT_EQ(ParseInvitation(bad).status().code(), absl::StatusCode::kUnauthenticated);
  }
}

}  // namespace
}  // namespace temper
