// Who may call what: one table, and the rules that go beyond it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "security/token.h"

namespace temper {

// Who makes a call.
struct Principal {
  enum class Kind { kAnonymous, kToken, kCertificate };
  Kind kind = Kind::kAnonymous;
  std::string id;     // the token's id, the certificate's serial; of nobody known: what it calls itself, may be empty
  std::string owner;  // whose jobs are its own; empty: nobody's
  // What it proved to have: its token, or its certificate's key, which stays when the certificate is renewed. Empty: it
  // proved nothing.
  std::string holds;
  Scopes scopes;
  bool every_key = false;  // or only these:
  std::vector<std::string> device_keys;
};
// Whose shares of the server its calls count to: a person's, or who holds what was proved; empty: nobody's.
const std::string& Sharer(const Principal& principal);
std::string Describe(const Principal& principal);  // for logs and the audit: "token 1a2b (alice)"

// Nobody known, on a server that was not initialised: may do everything but with another's jobs and leases. `identity`
// is what the client calls itself, and as secret as it keeps it.
Principal OpenPrincipal(std::string_view identity);

enum class Call {
  kSubmitJob,
  kWatchJob,
  kCancelJob,
  kSetPriority,
  kListJobs,
  kListDevices,
  kQueryBest,
  kQueryVerdict,
  kPutRecords,
  kTrustRecords,  // records put by hand that may outrank measured ones
  kExportRecords,
  kRegister,
  kSync,
  kSubmitResults,
  kLeave,
  kJoin,
  kRenew,
  kAddDevice,
  kApproveDevice,
  kRevokeDevice,
  kDrain,
  kAddToken,
  kListTokens,
  kRevokeToken,
  kListAudit,
};

enum class About { kNothing, kDeviceKey, kJob };  // what else than the scope is asked for
struct Right {
  Call call;
  const char* name;
  std::optional<Scope> scope;  // none: anybody may call it
  About about;
  bool audited;  // also when it is allowed
};
std::span<const Right> Rights();  // one for each call, in the order of Call
const Right& RightOf(Call call);

// What a call is about.
struct Subject {
  std::string device_key;  // About::kDeviceKey; empty: not known yet, so any
  std::string owner;       // About::kJob: whose it is; empty: nobody's
  std::string text;        // for the audit: "job 7"
};
// kUnauthenticated: nobody known may not. kPermissionDenied: this one may not. One line.
absl::Status Allowed(const Principal& principal, Call call, const Subject& subject);

}  // namespace temper
