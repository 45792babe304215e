// The dashboard of a server: a page for people, and the JSON behind it (docs/dashboard.md). It reads, and changes
// nothing.
//
// Who may read: whoever holds a token with the scope `read`, shown as a bearer or, by a browser, once for a cookie. An
// open server asks for none. Either way the caller is on this machine, or came by a proxy or a tunnel that ends here:
// the listener's wire is not encrypted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "security/gate.h"
#include "tuner_server/dashboard/logins.h"
#include "tuner_server/operations/http.h"
#include "tuner_server/service/core.h"

namespace temper {

// Whether a request's Host can be this name.
bool IsHostName(std::string_view name);

struct DashboardOptions {
  std::vector<std::string> hosts;  // names that it is reached by, beside localhost and addresses in digits
};

class Dashboard {
 public:
  // What is passed in outlives it.
  Dashboard(ServerCore& core, Gate& gate, DashboardOptions options);

  // For one listener, which ends before the dashboard does. Whatever asks the store or looks at the logins is slow, so
  // that one thread does it all.
  std::vector<HttpRoute> Routes();

 private:
  using View = absl::StatusOr<std::string> (Dashboard::*)(const HttpRequest&);

  HttpReply Show(const HttpRequest& request, std::string_view file, const char* type) const;
  HttpReply Answer(const HttpRequest& request, Call call, View view);
  HttpReply TellSession(const HttpRequest& request);
  HttpReply LogIn(const HttpRequest& request);
  HttpReply LogOut(const HttpRequest& request);

  absl::Status CheckHost(const HttpRequest& request) const;
  absl::Status CheckOrigin(const HttpRequest& request) const;
  absl::StatusOr<Principal> Admit(const HttpRequest& request, Call call);
  absl::StatusOr<Principal> AskGate(const Credentials& credentials, Call call);  // counts refusals

  // JSON each. kInvalidArgument: a parameter is wrong.
  absl::StatusOr<std::string> Status(const HttpRequest& request);
  absl::StatusOr<std::string> Jobs(const HttpRequest& request);
  absl::StatusOr<std::string> Job(const HttpRequest& request);
  absl::StatusOr<std::string> Devices(const HttpRequest& request);
  absl::StatusOr<std::string> Records(const HttpRequest& request);
  absl::StatusOr<std::string> Models(const HttpRequest& request);
  absl::StatusOr<std::string> Failures(const HttpRequest& request);
  absl::StatusOr<std::string> Progress(const HttpRequest& request);

  ServerCore& core_;
  Gate& gate_;
  const DashboardOptions options_;
  Logins logins_;
};

}  // namespace temper
