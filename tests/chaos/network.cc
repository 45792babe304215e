#include "tests/chaos/network.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace temper {
namespace {

absl::Status Shell(const std::string& command) {
  std::FILE* pipe = popen(absl::StrCat("(", command, ") 2>&1").c_str(), "r");
  if (pipe == nullptr) return absl::UnavailableError("no shell");
  std::string said;
  std::array<char, 1024> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) said.append(buffer.data(), n);
  return pclose(pipe) == 0 ? absl::OkStatus() : absl::UnavailableError(absl::StrCat(command, ": ", said));
}

// Of this process alone: its number is in the names and in the addresses.
std::string Subnet() {
  const int number = getpid() % (1 << 14);
  return absl::StrCat("10.", 192 + (number >> 8), ".", number & 0xFF, ".");
}

std::string Outer() { return absl::StrCat("tmp", getpid()); }

}  // namespace

absl::StatusOr<Network> Network::Make() {
  const std::string name = absl::StrCat("temper", getpid()), outer = Outer();
  Network network;
  network.name_ = name;
  const std::string inside = absl::StrCat("ip netns exec ", name, " ");
  TEMPER_RETURN_IF_ERROR(Shell(
      absl::StrCat("ip netns add ", name, " && ip link add ", outer, " type veth peer name inner netns ", name,     //
                   " && ip addr add ", Subnet(), "1/24 dev ", outer, " && ip link set ", outer, " up",              //
                   " && ", inside, "ip addr add ", Subnet(), "2/24 dev inner && ", inside, "ip link set inner up",  //
                   " && ", inside, "ip link set lo up && ", inside, "nft add table inet faults",                    //
                   " && ", inside, "nft 'add chain inet faults in { type filter hook input priority 0; }'",         //
                   " && ", inside, "nft 'add chain inet faults out { type filter hook output priority 0; }'")));
  return network;
}

Network::~Network() {
  if (name_.empty()) return;
  // The cable would go with the namespace, but some time later, and its name with it. The last namespace's folder was
  // mounted for the first one.
  (void)Shell(absl::StrCat("ip link del ", Outer(), "; ip netns del ", name_,
                           "; [ -n \"$(ls -A /run/netns)\" ] || umount /run/netns"));
}

std::string Network::address() const { return Subnet() + "2"; }

absl::Status Network::Lose(Direction direction, int percent) {
  const char* chain = direction == Direction::kToServer ? "in" : "out";
  const std::string some = percent < 100 ? absl::StrCat("numgen random mod 100 lt ", percent, " ") : "";
  return Shell(absl::StrCat("ip netns exec ", name_, " nft add rule inet faults ", chain, " ", some, "drop"));
}

absl::Status Network::Heal() { return Shell(absl::StrCat("ip netns exec ", name_, " nft flush table inet faults")); }

}  // namespace temper
