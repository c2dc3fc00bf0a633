// Sends HTTP byte by byte, also malformed, as a client of tests.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace walsh::test {

// This is longer than anything takes that does not hang.
constexpr int patience_ms = 20000;

struct ClientResponse {
  int status = 0;                              // 0: the connection ended without one
  std::map<std::string, std::string> headers;  // names as sent
  std::string body;
  bool complete = false;  // its end was seen
};

class Client {
 public:
  // `receive_buffer` > 0 bounds what the kernel takes for us.
  explicit Client(uint16_t port, int receive_buffer = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
  Client(Client&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)),
        connected_(other.connected_),
        received_(std::move(other.received_)) {}
  Client& operator=(Client&&) = delete;

  bool connected() const { return connected_; }

  // Returns false if the server takes no more.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  void shut_down_sending() { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  // Ends with a reset instead of an orderly end.
  void abort() {
    const linger hard{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }

  // Returns the next answer; of an event stream everything up to its end.
  ClientResponse response(bool has_body = true) {
    ClientResponse result;
    std::string head;
    if (!take_until("\r\n\r\n", head)) return result;
    result.status = std::atoi(head.substr(9, 3).c_str());
    for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      result.headers[head.substr(at, colon - at)] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    if (!has_body || result.status < 200 || result.status == 204) {
      result.complete = true;
    } else if (result.headers.contains("Content-Length")) {
      const size_t size = std::stoul(result.headers["Content-Length"]);
      result.complete = take(size, result.body);
    } else if (result.headers.contains("Transfer-Encoding")) {
      std::string piece;
      while (next_chunk(piece)) {
        if (piece.empty()) result.complete = true;
        if (piece.empty()) break;
        result.body += piece;
      }
    } else {
      result.complete = ended();
      result.body = std::exchange(received_, {});
    }
    return result;
  }
  ClientResponse ask(std::string_view request) {
    return send(request) ? response() : ClientResponse();
  }

  // Returns the status line and fields of an answer whose body is read by next_chunk().
  std::string head() {
    std::string text;
    take_until("\r\n\r\n", text);
    return text;
  }
  // Returns false at the end of the connection; an empty piece is the end of the body.
  bool next_chunk(std::string& piece) {
    std::string size, rest;
    if (!take_until("\r\n", size)) return false;
    return take(std::stoul(size, nullptr, 16), piece) && take(2, rest);
  }
  // Reads until the server closes the connection, orderly or not.
  bool ended() {
    while (receive()) {
    }
    return ended_;
  }
  // Returns whether something, or the end, has arrived.
  bool readable(int milliseconds) const {
    pollfd query{socket_, POLLIN, 0};
    return !received_.empty() || ::poll(&query, 1, milliseconds) > 0;
  }
  const std::string& received() const { return received_; }

 private:
  bool receive() {
    if (!connected_ || ended_) return false;
    pollfd query{socket_, POLLIN, 0};
    if (::poll(&query, 1, patience_ms) <= 0) {
      ADD_FAILURE() << "the server neither answers nor closes the connection";
      return false;
    }
    char bytes[16384];
    const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
    ended_ = n <= 0;
    if (!ended_) received_.append(bytes, static_cast<size_t>(n));
    return !ended_;
  }
  bool take(size_t size, std::string& text) {
    while (received_.size() < size) {
      if (!receive()) return false;
    }
    text = received_.substr(0, size);
    received_.erase(0, size);
    return true;
  }
  bool take_until(std::string_view mark, std::string& text) {
    while (received_.find(mark) == std::string::npos) {
      if (!receive()) return false;
    }
    return take(received_.find(mark) + mark.size(), text);
  }

  int socket_ = -1;
  bool connected_ = false, ended_ = false;
  std::string received_;
};

// Waits until `condition` holds; returns false if it never does.
template <typename Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace walsh::test
