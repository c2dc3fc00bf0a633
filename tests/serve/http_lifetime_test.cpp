// Tests deadlines, clients that disconnect, and the shutdown of the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/running_server.h"

namespace walsh {
namespace {

using test::any_port;
using test::Client;
using test::ClientResponse;
using test::Desk;
using test::eventually;
using test::RunningServer;
using testing::HasSubstr;

constexpr const char* wait_request = "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr const char* events_request = "GET /events HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr const char* quick_request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(HttpDeadline, EndsSlowHeaders) {
  HttpOptions options = any_port();
  options.header_seconds = 0.2;
  Desk desk;
  RunningServer server(options, desk.handler());
  std::vector<Client> slow;
  for (int i = 0; i < 50; ++i) {
    slow.emplace_back(server.port());
    ASSERT_TRUE(slow.back().send("GET / HTTP/1.1\r\nHost: x\r\n"));
  }
  EXPECT_EQ(Client(server.port()).ask(quick_request).status, 200);
  // Activity does not prolong the deadline.
  while (!slow[0].readable(10))
    slow[0].send("a");
  for (Client& client : slow) {
    const ClientResponse response = client.response();
    EXPECT_EQ(response.status, 408);
    EXPECT_TRUE(client.ended());
  }
  slow.clear();
  EXPECT_TRUE(server.idle());
}

TEST(HttpDeadline, EndsSlowBodies) {
  HttpOptions options = any_port();
  options.body_seconds = 0.2;
  Desk desk;
  RunningServer server(options, desk.handler());
  Client plain(server.port()), chunked(server.port());
  plain.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  chunked.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  while (!plain.readable(10))
    plain.send("a");
  EXPECT_EQ(plain.response().status, 408);
  EXPECT_EQ(chunked.response().status, 408);
}

TEST(HttpDeadline, ClosesConnectionsWithoutRequests) {
  HttpOptions options = any_port();
  options.header_seconds = 0.2;
  options.idle_seconds = 0.1;
  Desk desk;
  RunningServer server(options, desk.handler());
  Client fresh(server.port()), used(server.port());
  EXPECT_EQ(used.ask(quick_request).status, 200);
  EXPECT_TRUE(fresh.ended());
  EXPECT_TRUE(used.ended());
  EXPECT_EQ(fresh.received() + used.received(), "");
}

TEST(HttpDeadline, DoesNotHoldForAnswers) {
  HttpOptions options = any_port();
  options.header_seconds = options.idle_seconds = options.body_seconds = 0.05;
  options.write_seconds = 0.05;
  Desk desk;
  RunningServer server(options, desk.handler());
  Client client(server.port());
  client.send(wait_request);
  const auto replies = desk.take(1);
  EXPECT_FALSE(client.readable(200));
  replies[0]->send({});
  EXPECT_EQ(client.response().status, 200);
  EXPECT_EQ(desk.gone, 0);
}

TEST(HttpDeadline, CutsOffClientsThatDoNotRead) {
  HttpOptions options = any_port();
  options.write_seconds = 0.2;
  Desk desk;
  RunningServer server(options, desk.handler());
  Client whole(server.port(), 4096), events(server.port(), 4096);
  whole.send(wait_request);
  desk.take(1)[0]->send({200, "text/plain", std::string(16 << 20, 'x'), {}});
  events.send(events_request);
  const auto replies = desk.take(1);
  for (int i = 0; i < 12; ++i)
    replies[0]->event(std::string(1 << 20, 'x'));
  EXPECT_TRUE(eventually([&] { return desk.gone == 1; }));
  EXPECT_TRUE(server.idle());
}

// Many clients that read next to nothing would otherwise fill the memory with their answers.
TEST(HttpDeadline, AnswersThatNobodyReadsAreBoundedTogether) {
  HttpOptions options = any_port();
  options.answer_bytes = 24 << 20;
  Desk desk;
  RunningServer server(options, desk.handler());
  const std::string large(16 << 20, 'x');
  Client slow(server.port(), 4096);
  slow.send(wait_request);
  desk.take(1)[0]->send({200, "text/plain", large, {}});
  ASSERT_TRUE(slow.readable(test::patience_ms));
  Client other(server.port());
  other.send(wait_request);
  desk.take(1)[0]->send({200, "text/plain", large, {}});
  EXPECT_EQ(other.response().status, 503);
  EXPECT_EQ(other.ask(quick_request).status, 200);
  Client events(server.port(), 4096);
  events.send(events_request);
  const auto replies = desk.take(1);
  replies[0]->event(large);
  EXPECT_TRUE(eventually([&] { return desk.gone == 1; }));
  EXPECT_EQ(slow.response().body.size(), large.size());
  EXPECT_TRUE(eventually([&] {
    other.send(wait_request);
    desk.take(1)[0]->send({200, "text/plain", large, {}});
    return other.response().status == 200;
  }));
}

TEST(HttpEvents, ComeInChunksAsTheyAreWritten) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Client client(server.port());
  for (int round = 0; round < 2; ++round) {
    client.send(events_request);
    const auto replies = desk.take(1);
    const std::string head = client.head();
    EXPECT_THAT(head, HasSubstr("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream\r\n"));
    EXPECT_THAT(head, HasSubstr("Cache-Control: no-store\r\n"));
    EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\n"));
    std::string piece;
    for (int i = 0; i < 3; ++i) {
      const std::string event = "data: " + std::to_string(i) + "\n\n";
      replies[0]->event(event);
      replies[0]->event("");
      ASSERT_TRUE(client.next_chunk(piece));
      EXPECT_EQ(piece, event);
    }
    replies[0]->event("data: last\n\n");
    replies[0]->end_events();
    replies[0]->event("data: too late\n\n");
    std::string rest;
    while (client.next_chunk(piece) && !piece.empty())
      rest += piece;
    EXPECT_EQ(rest, "data: last\n\n");
  }
  EXPECT_EQ(client.ask(quick_request).status, 200);
  EXPECT_EQ(desk.gone, 0);
}

TEST(HttpEvents, EndWithTheConnectionForHttp10) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Client client(server.port());
  client.send("GET /events HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto replies = desk.take(1);
  replies[0]->event("data: a\n\n");
  replies[0]->end_events();
  const ClientResponse response = client.response();
  EXPECT_EQ(response.body, "data: a\n\n");
  EXPECT_EQ(response.headers.at("Connection"), "close");
  EXPECT_FALSE(response.headers.contains("Transfer-Encoding"));
}

TEST(HttpEvents, AreNotSentToHead) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Client client(server.port());
  client.send("HEAD /events HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto replies = desk.take(1);
  EXPECT_THAT(client.head(), HasSubstr("text/event-stream"));
  EXPECT_TRUE(eventually([&] { return desk.gone == 1; }));
  replies[0]->event("data: a\n\n");
  EXPECT_EQ(client.ask(quick_request).status, 200);
}

TEST(HttpEvents, CommentsKeepQuietStreamsAlive) {
  HttpOptions options = any_port();
  options.ping_seconds = 0.02;
  Desk desk;
  RunningServer server(options, desk.handler());
  Client client(server.port());
  client.send(events_request);
  const auto replies = desk.take(1);
  client.head();
  for (int i = 0; i < 3; ++i) {
    std::string piece;
    ASSERT_TRUE(client.next_chunk(piece));
    EXPECT_EQ(piece, ": ping\n\n");
  }
}

TEST(HttpEvents, AllArriveAtASlowReader) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Client client(server.port(), 4096);
  client.send(events_request);
  const auto replies = desk.take(1);
  std::string expected;
  for (int i = 0; i < 2000; ++i) {
    const std::string event = "data: " + std::to_string(i) + std::string(500, '.') + "\n\n";
    expected += event;
    replies[0]->event(event);
  }
  replies[0]->end_events();
  const ClientResponse response = client.response();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body, expected);
}

TEST(HttpEvents, ClientsThatFallFarBehindAreCutOff) {
  HttpOptions options = any_port();
  options.queue_bytes = 1 << 20;
  Desk desk;
  RunningServer server(options, desk.handler());
  Client client(server.port(), 4096);
  client.send(events_request);
  const auto replies = desk.take(1);
  for (int i = 0; i < 64; ++i)
    replies[0]->event(std::string(1 << 20, 'x'));
  EXPECT_TRUE(eventually([&] { return desk.gone == 1; }));
  EXPECT_TRUE(server.idle());
}

TEST(HttpEvents, AreNotCutOffForTheirLength) {
  HttpOptions options = any_port();
  options.queue_bytes = 1000;
  Desk desk;
  RunningServer server(options, desk.handler());
  Client client(server.port());
  client.send(events_request);
  const auto replies = desk.take(1);
  const std::string event = "data: " + std::string(100'000, '.') + "\n\n";
  replies[0]->event(event);
  replies[0]->end_events();
  const ClientResponse response = client.response();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body, event);
}

TEST(HttpEvents, BreakOffWhenTheHandlerFails) {
  std::atomic<bool> fail{false};
  RunningServer server(any_port(), [&](const HttpRequest& request, const auto& reply) {
    if (request.path == "/") return reply->send({});
    reply->start_events({});
    reply->event("data: a\n\n");
    EXPECT_TRUE(eventually([&] { return fail.load(); }));
    if (request.path == "/throw") throw 1;
  });
  for (const std::string path : {"/throw", "/forget"}) {
    fail = false;
    Client client(server.port());
    client.send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(client.head(), HasSubstr(" 200 OK"));
    std::string piece;
    EXPECT_TRUE(client.next_chunk(piece));
    fail = true;
    EXPECT_FALSE(client.next_chunk(piece));
    EXPECT_TRUE(client.ended());
  }
}

TEST(HttpEvents, ThatFailBeforeTheyBeginAreAnswered500) {
  // Whether the head is written before the failure is a matter of time.
  RunningServer server(any_port(), [](const HttpRequest& request, const auto& reply) {
    if (request.path == "/") return reply->send({});
    reply->start_events({});
    throw 1;
  });
  for (int i = 0; i < 20; ++i) {
    const ClientResponse response = Client(server.port()).ask(events_request);
    EXPECT_TRUE(response.status == 500 || (response.status == 200 && !response.complete));
  }
}

TEST(HttpGone, IsNoticedHoweverTheClientLeaves) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  const std::string pipelined = std::string(wait_request) + quick_request;
  int expected = 0;
  for (const std::string& request :
       {std::string(wait_request), std::string(events_request), pipelined}) {
    for (const bool reset : {false, true}) {
      Client client(server.port());
      client.send(request);
      auto replies = desk.take(1);
      EXPECT_EQ(desk.gone, expected);
      reset ? client.abort() : client.close();
      ++expected;
      EXPECT_TRUE(eventually([&] { return desk.gone == expected; }));
      // A callback that comes late is called at once, and an answer goes nowhere.
      std::atomic<bool> late{false};
      replies[0]->on_gone([&] { late = true; });
      EXPECT_TRUE(eventually([&] { return late.load(); }));
      replies[0]->event("data: a\n\n");
      replies[0]->send({});
      replies.clear();
      EXPECT_TRUE(server.idle());
    }
  }
  EXPECT_EQ(desk.gone, expected);
}

TEST(HttpGone, IsNotSaidAfterTheAnswer) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Client client(server.port());
  client.send(wait_request);
  const auto replies = desk.take(1);
  replies[0]->send({});
  replies[0]->on_gone([&] { ++desk.gone; });
  EXPECT_EQ(client.response().status, 200);
  client.abort();
  EXPECT_TRUE(server.idle());
  EXPECT_EQ(desk.gone, 0);
}

TEST(HttpGone, CallsMayThrowAndDropTheReply) {
  std::atomic<int> calls{0};
  RunningServer server(any_port(), [&](const HttpRequest& request, const auto& reply) {
    if (request.path == "/") return reply->send({});
    reply->on_gone([&calls, reply] {
      ++calls;
      throw 1;
    });
  });
  Client(server.port()).send(wait_request);
  EXPECT_TRUE(eventually([&] { return calls == 1; }));
  EXPECT_TRUE(server.idle());
  EXPECT_EQ(Client(server.port()).ask(quick_request).status, 200);
}

TEST(HttpGone, TwoHundredClientsThatLeaveCostNothing) {
  HttpOptions options = any_port();
  options.connections = 8;
  Desk desk;
  RunningServer server(options, desk.handler());
  int expected = 0;
  for (int i = 0; i < 200; ++i) {
    Client client(server.port());
    const bool handled = i % 5 == 2 || i % 5 == 3;
    if (i % 5 == 1) client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Le");
    if (i % 5 == 2) client.send(wait_request);
    if (i % 5 == 3) client.send(events_request);
    if (i % 5 == 4) client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
    const auto replies = desk.take(handled ? 1 : 0);
    i % 2 ? client.abort() : client.close();
    expected += handled;
    ASSERT_TRUE(eventually([&] { return desk.gone == expected; }));
    for (const auto& reply : replies)
      reply->event("data: a\n\n");
    // This is before the limit is reached.
    if (i % 8 == 7) {
      ASSERT_TRUE(server.idle());
    }
  }
  EXPECT_TRUE(server.idle());
  EXPECT_EQ(Client(server.port()).ask(quick_request).status, 200);
}

TEST(HttpShutDown, LetsAnswersEnd) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Client stream(server.port()), whole(server.port()), idle(server.port()), begun(server.port());
  stream.send(events_request);
  const auto events = desk.take(1);
  whole.send(wait_request);
  const auto waiting = desk.take(1);
  EXPECT_EQ(idle.ask(quick_request).status, 200);
  const ClientResponse permission =
      begun.ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(permission.status, 100);

  server->shut_down(100);
  EXPECT_TRUE(idle.ended());
  EXPECT_EQ(idle.received(), "");
  const ClientResponse late = begun.response();
  EXPECT_EQ(late.status, 503);
  EXPECT_EQ(late.headers.at("Connection"), "close");
  begun.close();
  // A health check notices the shutdown until the last answer has ended.
  for (int i = 0; i < 3; ++i) {
    const ClientResponse told = Client(server.port()).ask(quick_request);
    EXPECT_EQ(told.status, 503);
    EXPECT_EQ(told.headers.at("Connection"), "close");
  }
  Client silent(server.port());

  events[0]->event("data: a\n\n");
  events[0]->end_events();
  const ClientResponse streamed = stream.response();
  EXPECT_EQ(streamed.body, "data: a\n\n");
  EXPECT_TRUE(streamed.complete);
  EXPECT_FALSE(server.returned());
  waiting[0]->send({200, "text/plain", "b", {}});
  const ClientResponse answered = whole.response();
  EXPECT_EQ(answered.body, "b");
  EXPECT_EQ(answered.headers.at("Connection"), "close");
  EXPECT_TRUE(whole.ended() && stream.ended() && silent.ended());
  EXPECT_TRUE(eventually([&] { return !Client(server.port()).connected(); }));
  whole.close();
  stream.close();
  server.join();
  EXPECT_EQ(desk.gone, 0);
}

TEST(HttpShutDown, EndsWhatLastsTooLong) {
  Desk desk;
  RunningServer server(any_port(), desk.handler());
  Client stream(server.port()), whole(server.port());
  stream.send(events_request);
  whole.send(wait_request);
  const auto replies = desk.take(2);
  server->shut_down(100);
  server->shut_down(0.05);  // a second call shortens it
  server->shut_down(50);    // and never prolongs
  server.join();
  EXPECT_EQ(desk.gone, 2);
  EXPECT_FALSE(stream.response().complete);
  EXPECT_EQ(whole.response().status, 0);
}

TEST(HttpShutDown, EndsARunThatHasNotBegun) {
  Desk desk;
  HttpServer server(any_port(), desk.handler(), test::error_text);
  server.shut_down(10);
  server.run();
  HttpServer never_run(any_port(), desk.handler(), test::error_text);
}

TEST(HttpShutDown, RepliesOutliveTheServer) {
  Desk desk;
  auto server = std::make_unique<RunningServer>(any_port(), desk.handler());
  Client stream(server->port()), whole(server->port());
  stream.send(events_request);
  whole.send(wait_request);
  auto replies = desk.take(2);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) {
      for (const auto& reply : replies)
        reply->event("data: a\n\n");
      std::this_thread::yield();
    }
  });
  sleep_ms(10);
  server.reset();
  EXPECT_EQ(desk.gone, 2);
  stop = true;
  writer.join();
  for (const auto& reply : replies) {
    int late = 0;
    reply->on_gone([&] { ++late; });
    EXPECT_EQ(late, 1);
    reply->send({});
    reply->end_events();
  }
  replies.clear();
  EXPECT_FALSE(stream.response().complete);
}

TEST(HttpShutDown, WaitsForHandlers) {
  std::atomic<bool> entered{false}, left{false};
  {
    RunningServer server(any_port(), [&](const HttpRequest& request, const auto& reply) {
      if (request.path == "/") return reply->send({});
      entered = true;
      sleep_ms(100);
      left = true;
    });
    Client client(server.port());
    client.send(wait_request);
    ASSERT_TRUE(eventually([&] { return entered.load(); }));
  }
  EXPECT_TRUE(left);
}

}  // namespace
}  // namespace walsh
