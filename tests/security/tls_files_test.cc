// Files of TLS that are swapped while a server shows them.
#include "proto/tls_files.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/temporary_directory.h"
#include "proto/channel.h"
#include "security/certificate.h"
#include "security/files.h"
#include "security/key.h"
#include "security/server_directory.h"
#include "temper/v1/tuning.grpc.pb.h"
#include "tests/base/captured_log.h"
#include "tests/security/testing.h"
#include "tests/security/tls_probe.h"
#include "tuner_server/service/tls.h"

namespace temper {
namespace {

using ::testing::HasSubstr;

class TlsFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(InitServerDirectory(dir_, {}, absl::Now()).ok());
    const ServerDirectory directory = *OpenServerDirectory(dir_);
    files_ = {directory.authority_path, directory.certificate_path, directory.key_path};
  }
  static std::string Content(const std::string& path) { return *ReadSmallFile(path, Secrecy::kPrivate); }
  // As a plain copy does.
  static void Overwrite(const std::string& path, const std::string& content) { std::ofstream(path) << content; }

  TemporaryDirectory parent_ = *TemporaryDirectory::Make();
  const std::string dir_ = parent_.path() + "/server";
  TlsFiles files_;
};

TEST_F(TlsFilesTest, WhatCanNotBeUsedIsToldByItsName) {
  const std::string key = Content(files_.key), certificate = *ReadSmallFile(files_.certificate, Secrecy::kPublic);
  ASSERT_TRUE(ReadTlsFiles(files_).ok());
  for (const std::string& path : {files_.certificate, files_.key, files_.authority}) {
    const std::string before = *ReadSmallFile(path, Secrecy::kPublic);
    for (const std::string& content : {std::string(), std::string("garbage\n"), before.substr(0, before.size() / 2)}) {
      Overwrite(path, content);
      for (const absl::Status& status : {ReadTlsFiles(files_).status(), TlsWatch::Make(files_).status(),
                                         ChannelCredentialsOf("localhost:1", files_, absl::Now()).status()}) {
        EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(path));
      }
    }
    Overwrite(path, before);
  }
  Overwrite(files_.key, PrivateKey::Generate()->Pem());
  EXPECT_EQ(ReadTlsFiles(files_).status().message(), files_.key + ": the private key is not the certificate's");
}

class TlsWatchTest : public TlsFilesTest {
 protected:
  void SetUp() override {
    TlsFilesTest::SetUp();
    watch_ = *TlsWatch::Make(files_);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", TlsCredentialsOf(*watch_), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  void TearDown() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  std::string Shown() const {
    const auto session = Dial(address_, 0);
    return session.ok() ? ReadCertificate(session->certificate)->serial : std::string(session.status().message());
  }
  std::string SerialInFile() const {
    return ReadCertificate(*ReadSmallFile(files_.certificate, Secrecy::kPublic))->serial;
  }
  void ExpectRenewedIsShown() {
    ASSERT_TRUE(RenewServerCertificate(dir_, absl::Now()).ok());
    watch_->LookAgain();
    for (const absl::Time give_up = absl::Now() + kPatience; Shown() != SerialInFile() && absl::Now() < give_up;) {
    }
    EXPECT_EQ(Shown(), SerialInFile());
  }

  std::unique_ptr<TlsWatch> watch_;
  v1::TuningService::Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(TlsWatchTest, TheLastSoundPairStaysInUseAndTheLogSaysSoOnce) {
  const std::string serial = SerialInFile();
  for (const std::string& path : {files_.certificate, files_.key}) {
    const std::string before = *ReadSmallFile(path, Secrecy::kPublic);
    for (const std::string& content : {std::string(), std::string("garbage\n")}) {
      const CapturedLog log(LogFormat::kText);
      Overwrite(path, content);
      for (int i = 0; i < 3; ++i) watch_->LookAgain();
      const std::string text = log.text();
      EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
      EXPECT_THAT(text, HasSubstr(path));
      EXPECT_THAT(text, HasSubstr("stays in use"));
      EXPECT_EQ(Shown(), serial);
      Overwrite(path, before);
      watch_->LookAgain();
    }
  }
  ExpectRenewedIsShown();
}

TEST_F(TlsWatchTest, EachSwapIsTakenUp) {
  for (int i = 0; i < 3; ++i) ExpectRenewedIsShown();
}

TEST_F(TlsWatchTest, APairThatIsHalfWrittenIsTakenUpOnceItIsWhole) {
  const std::string other = parent_.path() + "/other";
  ASSERT_TRUE(InitServerDirectory(other, {}, absl::Now()).ok());
  const std::string serial = SerialInFile();
  Overwrite(files_.key, Content(other + "/server.key"));
  watch_->LookAgain();
  EXPECT_EQ(Shown(), serial) << "the new key has no certificate yet";
  Overwrite(files_.certificate, *ReadSmallFile(other + "/server.crt", Secrecy::kPublic));
  watch_->LookAgain();
  for (const absl::Time give_up = absl::Now() + kPatience; Shown() == serial && absl::Now() < give_up;) {
  }
  EXPECT_EQ(Shown(), SerialInFile());
}

}  // namespace
}  // namespace temper
