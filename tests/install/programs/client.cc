// Submits an operator for a device that is not there, follows the job, ends it, and asks for what was found.
#include <cstdio>
#include <temper/tuning.h>

int main(int, char** argv) {
  try {
    temper::TuningServer server;
    server.address = argv[1];
    temper::TuningClient client(server);
    temper::TuningLimits limits;
    limits.trials = 5;
    const int64_t job = client.Submit("board", {"(f32[4]) relu(0) -> f32[4]; anchor=0"}, limits);
    client.SetPriority(job, 3);
    const temper::TuningJob waiting =
        client.Watch(job, [](const temper::TuningJob& seen) { return seen.state == "queued"; });
    std::printf("%s %s\n", waiting.device.c_str(), waiting.state.c_str());
    client.Cancel(job);
    const temper::TuningJob over = client.Watch(job);
    std::printf("%s, priority %d of %zu\n", over.state.c_str(), over.priority, client.Jobs().size());
    std::printf("%zu devices, %zu configs\n", client.Devices().size(), client.Best().size());
    client.Job(job + 1);
  } catch (const temper::TuningError& error) {
    std::printf("refused: %s\n", error.what());
  }
}
