#include "tuner_server/service/local_peers.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>

#include <cstring>

namespace temper {
namespace {

// An end of a connection as the kernel's answers have it.
struct End {
  uint8_t family = AF_UNSPEC;
  uint16_t port = 0;         // in network order, like the address
  uint32_t address[4] = {};  // IPv4 has one
};

End EndOf(const sockaddr_storage& name) {
  End end;
  if (name.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(name);
    end.family = AF_INET;
    end.port = v4.sin_port;
    std::memcpy(end.address, &v4.sin_addr, sizeof(v4.sin_addr));
  } else if (name.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(name);
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
    end.family = mapped ? AF_INET : AF_INET6;
    end.port = v6.sin6_port;
    std::memcpy(end.address, &v6.sin6_addr.s6_addr[mapped ? 12 : 0], mapped ? 4 : 16);
  }
  return end;
}

bool IsLoopback(const End& end) {
  constexpr unsigned char kV6[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  if (end.family == AF_INET) return reinterpret_cast<const unsigned char*>(end.address)[0] == 127;
  return std::memcmp(end.address, kV6, sizeof(kV6)) == 0;
}

struct Question {
  nlmsghdr header{};
  inet_diag_req_v2 about{};
};

Question AskFor(const End& peer, const End& own) {
  Question question;
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.about.sdiag_family = peer.family;
  question.about.sdiag_protocol = IPPROTO_TCP;
  question.about.idiag_states = ~0U;
  // Seen from the other end, whose socket is asked for.
  question.about.id.idiag_sport = peer.port;
  question.about.id.idiag_dport = own.port;
  std::memcpy(question.about.id.idiag_src, peer.address, sizeof(peer.address));
  std::memcpy(question.about.id.idiag_dst, own.address, sizeof(own.address));
  question.about.id.idiag_cookie[0] = question.about.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return question;
}

}  // namespace

LocalPeers::LocalPeers() : kernel_(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {}

std::optional<uid_t> LocalPeers::UserOf(int connection, const sockaddr_storage& peer_name) {
  sockaddr_storage own_name{};
  socklen_t size = sizeof(own_name);
  if (!kernel_.valid() || getsockname(connection, reinterpret_cast<sockaddr*>(&own_name), &size) != 0) return {};
  const End peer = EndOf(peer_name), own = EndOf(own_name);
  if (peer.family == AF_UNSPEC || peer.family != own.family) return {};
  const bool same_address = std::memcmp(peer.address, own.address, sizeof(own.address)) == 0;
  if (!same_address && !IsLoopback(peer)) return {};
  const Question question = AskFor(peer, own);
  if (send(kernel_.get(), &question, sizeof(question), 0) != sizeof(question)) return {};
  struct {
    nlmsghdr header;
    inet_diag_msg told;
    char more[1024];  // details that nobody asked for
  } answer{};
  const ssize_t got = recv(kernel_.get(), &answer, sizeof(answer), MSG_DONTWAIT);  // it was made before send returned
  if (got < static_cast<ssize_t>(sizeof(answer.header) + sizeof(answer.told))) return {};
  // A socket that is closed has no file any more, and so nobody's number.
  if (answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY || answer.told.idiag_inode == 0) return {};
  return answer.told.idiag_uid;
}

}  // namespace temper
