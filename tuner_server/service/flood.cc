#include "tuner_server/service/flood.h"

#include <arpa/inet.h>
#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace temper {
namespace {

// What a function of channelz answered; null where it has nothing.
nlohmann::json Taken(char* text) {
  if (text == nullptr) return nullptr;
  nlohmann::json value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  gpr_free(text);
  return value;
}

// Numbers of 64 bits are texts in channelz, and zeros are left out.
int64_t Number(const nlohmann::json& object, const char* field) {
  int64_t value = 0;
  const auto found = object.find(field);
  if (found != object.end() && found->is_string()) (void)absl::SimpleAtoi(found->get<std::string>(), &value);
  return value;
}

// As channelz ends the name of a connection.
std::string NameOf(const sockaddr_storage& peer) {
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat(" ipv4:", text, ":", ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
    return absl::StrCat(" ipv4:", text, ":", ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return absl::StrCat(" ipv6:%5B", text, "%5D:", ntohs(v6.sin6_port));
}

std::optional<int64_t> FindAmongSocketsOf(int64_t server, const std::string& name) {
  for (int64_t next = 0;;) {
    const nlohmann::json page = Taken(grpc_channelz_get_server_sockets(server, next, 0));
    if (!page.is_object() || !page.contains("socketRef") || page["socketRef"].empty()) return std::nullopt;
    for (const nlohmann::json& socket : page["socketRef"]) {
      if (absl::EndsWith(socket.value("name", ""), name)) return Number(socket, "socketId");
      next = Number(socket, "socketId") + 1;
    }
    if (page.value("end", false)) return std::nullopt;
  }
}

}  // namespace

std::optional<int64_t> TransportCounters::Find(const sockaddr_storage& peer) {
  const nlohmann::json servers = Taken(grpc_channelz_get_servers(0));
  if (!servers.is_object() || !servers.contains("server")) return std::nullopt;
  for (const nlohmann::json& server : servers["server"]) {
    if (const auto found = FindAmongSocketsOf(Number(server["ref"], "serverId"), NameOf(peer))) return found;
  }
  return std::nullopt;
}

std::optional<StreamCounts> TransportCounters::Read(int64_t id) {
  const nlohmann::json socket = Taken(grpc_channelz_get_socket(id));
  if (!socket.is_object() || !socket.contains("socket")) return std::nullopt;
  const nlohmann::json data = socket["socket"].value("data", nlohmann::json::object());
  return StreamCounts{.started = Number(data, "streamsStarted"), .answered = Number(data, "streamsSucceeded")};
}

bool FloodMeter::Floods(int64_t bytes, const StreamCounts& counts, absl::Duration now) {
  if (counts.answered > counts_.answered) answered_at_ = bytes;
  const int64_t wasted = (counts.started - counts.answered) - (counts_.started - counts_.answered);
  wasted_ -= kWastedPerSecond * absl::ToDoubleSeconds(now - seen_);
  wasted_ = std::max(0.0, wasted_) + static_cast<double>(wasted);
  seen_ = now;
  counts_ = counts;
  received_ = bytes;
  return wasted_ > kWastedAtOnce || unanswered() > kBytesUnanswered;
}

bool FloodMeter::FloodsUnheeded(const Traffic& traffic, absl::Duration now) {
  const absl::Duration passed = std::min(now - looked_, kBusyBetweenLooks);
  // What came in since then gRPC may not have had the time for.
  const bool behind = traffic.received - traffic.unread < received_by_then_;
  looked_ = now;
  received_ = received_by_then_ = traffic.received;
  if (traffic.sent != sent_) {
    sent_ = traffic.sent;
    heeded_at_ = traffic.received;
    busy_ = absl::ZeroDuration();
  }
  const int64_t unheeded = traffic.received - heeded_at_;
  if (unheeded > kBytesOfSuspects && behind) busy_ += passed;
  return unheeded > kBytesUnheeded || busy_ > kBusy;
}

}  // namespace temper
