// The ways in which the null device misbehaves when a config asks for it.
#pragma once

#include <string>
#include <string_view>

namespace temper::worker {

// The value of "name=value" in a config's text; empty if there is none.
std::string Field(std::string_view config, std::string_view name);

// Ends or spoils this process in the way that `fault` names; returns if it names none of these:
//   segv ill abort exit hang       dies so, or does not
//   garbage                        sends bytes that are no message
//   chatter log                    writes much on its standard error, or without end
//   forks memory disk              takes processes, memory or temporary files until it is stopped
// "say" sends the bytes of the config's "bytes" field, in hexadecimal digits, to the supervisor, and goes on.
void Misbehave(std::string_view fault, std::string_view config);

// Tries what the config's "escape" field says: connect (to 127.0.0.1:port), ask (who listens at path), read, write or
// mode (path), ptrace, kill, own or peek (pid). Returns what it could do; empty: it was stopped.
std::string Escape(std::string_view config);

}  // namespace temper::worker
