// server MODEL shows how to write a server of your own around walsh. It listens on a free port of
// 127.0.0.1, which it prints; a client sends a line with a prompt and gets the text as it is
// generated. One thread evaluates all texts together, and another one reads each connection. The
// program ends when standard input does.
#include <walsh/batch.h>
#include <walsh/error.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <exception>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace {

constexpr size_t kLongestPrompt = 4096;

bool send_all(int client, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(client, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string read_line(int client) {
  std::string line;
  char c = 0;
  while (line.size() < kLongestPrompt && ::recv(client, &c, 1, 0) == 1 && c != '\n')
    line += c;
  return line;
}

// Serves one connection. The callbacks run on the thread that evaluates, which must not wait for a
// slow client. They put pieces into a queue, and this thread sends them.
class Client {
 public:
  Client(walsh::TextBatch& batch, int socket) : batch_(batch), socket_(socket) {}

  void serve() {
    walsh::GenerationOptions options;
    options.max_tokens = 32;
    options.temperature = 0;
    uint64_t text = 0;
    try {
      text = batch_.add(
          read_line(socket_), options,
          [this](std::string_view piece) {
            put(std::string(piece), false);
            return true;
          },
          [this](const walsh::GenerationResult&, const walsh::Error* error) {
            put(error != nullptr ? std::string("error: ") + error->what() : "", true);
          });
    } catch (const walsh::Error& e) {
      send_all(socket_, std::string("error: ") + e.what());
      return;
    }
    bool there = true;
    for (bool last = false; !last;) {
      std::string piece;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !pieces_.empty() || last_; });
        piece.swap(pieces_);
        last = last_;
      }
      if (there && !send_all(socket_, piece)) {
        there = false;
        batch_.cancel(text);  // the client has left; this still waits for the end
      }
    }
  }

 private:
  void put(const std::string& piece, bool last) {
    const std::lock_guard lock(mutex_);
    pieces_ += piece;
    last_ = last;
    changed_.notify_one();
  }

  walsh::TextBatch& batch_;
  const int socket_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string pieces_;
  bool last_ = false;
};

int listen_at_any_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* name = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || ::bind(listener, name, size) != 0 || ::listen(listener, 16) != 0 ||
      ::getsockname(listener, name, &size) != 0)
    throw walsh::Error(walsh::ErrorCode::io, "socket", std::strerror(errno));
  std::printf("port %d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  return listener;
}

void serve(const char* model) {
  walsh::EngineOptions machine;
  machine.context = 512;
  machine.batch.emplace().running = 4;
  const walsh::Engine engine = walsh::Engine::open(model, machine);
  walsh::TextBatch batch(engine, *machine.batch);
  const int listener = listen_at_any_port();
  std::thread steps([&batch] { batch.run(); });
  std::thread accepting([&] {
    std::list<std::thread> clients;
    for (int socket = 0; (socket = ::accept(listener, nullptr, nullptr)) >= 0;) {
      clients.emplace_back([&batch, socket] {
        Client(batch, socket).serve();
        ::close(socket);
      });
    }
    for (std::thread& client : clients)
      client.join();
  });
  while (std::getchar() != EOF) {
  }
  ::shutdown(listener, SHUT_RDWR);  // this ends accept()
  batch.stop();                     // this ends texts that are not finished
  accepting.join();
  steps.join();
  ::close(listener);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: server MODEL\n");
    return 2;
  }
  try {
    serve(argv[1]);
  } catch (const walsh::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return walsh::exit_status(e.code());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
