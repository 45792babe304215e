#include "tests/security/tls_probe.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <memory>

namespace temper {
namespace {

using OwnedContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using OwnedSsl = std::unique_ptr<SSL, decltype(&SSL_free)>;

constexpr unsigned char kHttp2[] = {2, 'h', '2'};

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

std::string PemOf(X509* certificate) {
  if (certificate == nullptr) return "";
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
  PEM_write_bio_X509(bio.get(), certificate);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

int ChooseHttp2(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char*, unsigned, void*) {
  *out = kHttp2 + 1;
  *out_size = 2;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

absl::StatusOr<Handshake> Dial(const std::string& address, int newest) {
  std::signal(SIGPIPE, SIG_IGN);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in to = Loopback(std::stoi(address.substr(address.rfind(':') + 1)));
  absl::StatusOr<Handshake> result = absl::UnavailableError("no agreement");
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
    const OwnedContext context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    SSL_CTX_set_security_level(context.get(), 0);  // or OpenSSL itself would not offer what is old
    SSL_CTX_set_min_proto_version(context.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context.get(), newest);
    const OwnedSsl ssl(SSL_new(context.get()), SSL_free);
    SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof kHttp2);
    SSL_set_fd(ssl.get(), fd);
    if (SSL_connect(ssl.get()) == 1) {
      result = Handshake{SSL_get_version(ssl.get()), PemOf(SSL_get0_peer_certificate(ssl.get()))};
    }
  }
  close(fd);
  return result;
}

OneHandshake::OneHandshake(const std::string& chain_pem, const PrivateKey& key) {
  std::signal(SIGPIPE, SIG_IGN);
  listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  bind(listening_, reinterpret_cast<sockaddr*>(&address), size);
  listen(listening_, 1);
  getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size);
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  thread_ = std::thread([this, chain_pem, key] { Serve(chain_pem, key); });
}

OneHandshake::~OneHandshake() {
  shutdown(listening_, SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
  close(listening_);
}

std::string OneHandshake::Version() {
  thread_.join();
  return version_;
}

void OneHandshake::Serve(const std::string& chain_pem, const PrivateKey& key) {
  const int fd = accept(listening_, nullptr, nullptr);
  if (fd < 0) return;
  if (!chain_pem.empty()) {
    const OwnedContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
    const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
        BIO_new_mem_buf(chain_pem.data(), static_cast<int>(chain_pem.size())), BIO_free);
    for (bool first = true; X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr);
         first = false) {
      if (first) SSL_CTX_use_certificate(context.get(), certificate);
      if (!first) SSL_CTX_add1_chain_cert(context.get(), certificate);
      X509_free(certificate);
    }
    SSL_CTX_use_PrivateKey(context.get(), key.get());
    SSL_CTX_set_alpn_select_cb(context.get(), ChooseHttp2, nullptr);
    const OwnedSsl ssl(SSL_new(context.get()), SSL_free);
    SSL_set_fd(ssl.get(), fd);
    if (SSL_accept(ssl.get()) == 1) version_ = SSL_get_version(ssl.get());
    SSL_shutdown(ssl.get());
  }
  close(fd);
}

}  // namespace temper
