// The listening side of a server. It owns the sockets that listen and hands the connections over to gRPC, whose own
// listener goes deaf for good after it ran out of descriptors once (gRPC 1.51).
//
// Descriptors: connections use numbers below a limit alone, the rest is left to the store, to logs and to gRPC. A
// connection above it is closed at once, and its peer tries again. One peer may take half of what there is for
// connections: an address, a user of this machine at one of its own addresses, or a process at a socket file.
//
// Floods: of each connection a duplicate of its descriptor is kept. What came in by TCP is compared with what gRPC
// sent and answered (flood.h), and a connection that floods is aborted, with those of its peer that wait for an answer
// to much; the peer is not listened to for some seconds. So it goes for a peer whose connections ended with much that
// was not answered, and for whoever brought most when all connections together wait for answers to more than gRPC may
// keep of them: it does not count headers. Who connects too often is closed at once. At a
// socket file, which is the server's own user's alone, all connections have one name, and gRPC 1.51 can not say which
// of them it counted: there a flood costs processor time until it ends, but no more descriptors and memory than here.
#pragma once

#include <grpcpp/server_builder.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/status.h"
#include "tuner_server/service/flood.h"
#include "tuner_server/service/listening_sockets.h"
#include "tuner_server/service/local_peers.h"
#include "tuner_server/service/work_pool.h"

namespace temper {

// What a process with this limit leaves for connections: the first number of a descriptor that is none's.
int DescriptorsForConnections(int limit);

// Bind, then Serve, then Close, from one thread.
class Listener {
 public:
  // Who connects waits until Serve. Addresses and errors: ListeningSockets::Open.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const std::string& address, const Clock& clock);
  ~Listener();  // Close

  const std::string& address() const { return address_; }  // with the port that was chosen
  // Hands over all connections to `server`, which was started.
  void Serve(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server);
  // Listens no longer, and lets go of all connections; gRPC's own descriptors of them stay.
  void Close();

 private:
  struct Connection {
    Descriptor duplicate;
    sockaddr_storage name;  // of the peer, with its port
    std::string peer;       // whose it is, see PeerOf
    FloodMeter meter;
    int64_t bytes = 0;       // that had come in when it was looked at last
    int64_t transport = -1;  // gRPC's id for it, once it is known
  };

  struct Peer {
    int connections = 0;
    absl::Duration deaf_until;
    PeerMeter meter;
  };

  Listener(ListeningSockets sockets, const Clock& clock);
  void Loop();
  void Heed(const epoll_event& event);
  void Watch(int fd, uint32_t events);
  void AcceptAll(int socket);
  void PauseAccepting();
  void ResumeAccepting();
  void Take(Descriptor connection, const sockaddr_storage& name, int socket);
  void Forget(std::map<int, Connection>::iterator connection);
  bool ShedOne(int socket);
  void Refuse(const char* why);
  void LookAtBusy();
  void LookForFloods();
  bool Floods(Connection& connection);
  void LookForTooMuch();
  // With the others of its peer that wait for an answer to much.
  void CutOff(int fd);
  void CutOffPeer(const std::string& peer, int fd);  // -1: only the others
  absl::Duration Now() const { return clock_.Monotonic(); }

  const std::string address_;
  std::optional<ListeningSockets> sockets_;  // until Close
  const Clock& clock_;
  const int descriptors_;  // numbers below it are for connections
  Descriptor epoll_, stop_;
  Descriptor spare_;  // is given up for a moment to close a connection that no descriptor is left for
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server_;
  // gRPC may go through all that a connection has brought before it takes the next one, however long that is: not on
  // the thread that looks for floods, which ends it.
  std::unique_ptr<WorkPool> handing_;

  // The thread's own.
  std::optional<absl::Duration> accept_from_;  // while nobody is accepted
  LocalPeers local_;
  std::map<int, Connection> connections_;  // by their duplicate
  std::set<int> busy_;                     // whose bytes came in since the last look, or are unread
  std::map<std::string, Peer> peers_;      // those that have connections, or anything held against them
  int64_t refused_ = 0;                    // since the last line in the log
  absl::Duration refusals_told_ = -absl::InfiniteDuration();
  std::thread thread_;
};

}  // namespace temper
