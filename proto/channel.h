// How our own peers reach a server, and by what they are known to it.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/tls_files.h"

namespace temper {

// Metadata of a call.
inline constexpr char kAuthorizationKey[] = "authorization";
inline constexpr char kBearerPrefix[] = "Bearer ";
inline constexpr char kIdentityKey[] = "temper-client";  // what a client calls itself

// For "HOST:PORT" or "unix:PATH", which is never encrypted. By what the files hold now. An error names the file that is
// missing or unfit, or the certificate that expired.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsOf(const std::string& address,
                                                                               const TlsFiles& files, absl::Time now);

// The same for a peer that lives long: connections show what the files held when `watch` looked at them last.
struct WatchedCredentials {
  std::unique_ptr<TlsWatch> watch;  // outlives the channels; null: nothing is encrypted
  std::shared_ptr<grpc::ChannelCredentials> credentials;
};
absl::StatusOr<WatchedCredentials> WatchedCredentialsOf(const std::string& address, const TlsFiles& files,
                                                        absl::Time now);
// Trusts the servers of one authority, and shows nothing.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(const std::string& authority_pem);

// Of each channel of our own peers. What a server sends compressed is not unpacked: a few bytes of it would fill the
// memory before anybody looks at how much it is.
grpc::ChannelArguments ChannelSettings();

// gRPC and protobuf write to stderr in their own way, also of calls that anybody may make; what matters of it comes
// back as a status. Sends it to the debug log. Once, from main, before other threads.
void LogLibrariesQuietly();

// "unix:PATH", or HOST:PORT of this machine itself: what is sent there, no other machine reads.
bool StaysOnThisMachine(const std::string& address);

}  // namespace temper
