#include "serve/model_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <new>
#include <thread>

#include "base/stop.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A pool whose models are nothing but entries of a log, with a clock that the test moves.
class ModelPoolTest : public testing::Test {
 protected:
  struct Fake : PooledModel {
    Fake(ModelPoolTest& test, std::string name) : test(test), name(std::move(name)) {}
    ~Fake() override { test.log.push_back("-" + name); }
    ModelPoolTest& test;
    std::string name;
  };
  // What became of a request.
  struct Asked {
    ModelLease lease;
    int error = 0;
    std::string message;
    uint64_t id = 0;
  };

  ModelPool& pool() {
    if (!pool_) {
      options.plan = [this](const ModelPlace& place) {
        if (place.name == "unreadable")
          throw Error(ErrorCode::bad_input, place.path, "is no model");
        return sizes.contains(place.name) ? sizes[place.name] : 10;
      };
      options.load = [this](const ModelPlace& place) -> std::unique_ptr<PooledModel> {
        log.push_back("+" + place.name);
        if (during_load) during_load(place);
        return std::make_unique<Fake>(*this, place.name);
      };
      options.clock = [this] { return time; };
      std::vector<ModelPlace> places;
      for (const char* name : {"a", "b", "c", "unreadable"})
        places.push_back({name, std::string("/models/") + name});
      pool_ = std::make_unique<ModelPool>(std::move(places), options);
    }
    return *pool_;
  }

  // Asks as the server does: takes the model or waits for it.
  std::shared_ptr<Asked> ask(const std::string& name, std::optional<double> keep = {}) {
    const auto asked = std::make_shared<Asked>();
    const size_t model = *pool().find(name);
    asked->lease = pool().take(model, keep);
    if (asked->lease) return asked;
    asked->id = pool().wait_for(model, {.ready = [asked](ModelLease l) { asked->lease = l; },
                                        .failed =
                                            [asked](const ApiError& e) {
                                              asked->error = e.status();
                                              asked->message = e.what();
                                            },
                                        .bytes = 1,
                                        .keep_seconds = keep});
    return asked;
  }
  // Does all that can be done now.
  void work() {
    while (pool().step()) {
    }
  }
  // Asks, and ends the request at once.
  void use(const std::string& name) {
    const auto asked = ask(name);
    work();
    EXPECT_TRUE(asked->lease) << name << ": " << asked->message;
    asked->lease.reset();
  }
  ModelState state(const std::string& name) { return pool().status(*pool().find(name)).state; }

  PoolOptions options;
  std::map<std::string, uint64_t> sizes;
  std::function<void(const ModelPlace&)> during_load;
  std::vector<std::string> log;  // of loads and unloads
  double time = 1000;
  std::unique_ptr<ModelPool> pool_;  // ends first
};

TEST_F(ModelPoolTest, AModelIsLoadedWhenItIsAskedFor) {
  work();
  EXPECT_THAT(log, IsEmpty());
  const auto asked = ask("b");
  EXPECT_FALSE(asked->lease);
  EXPECT_EQ(state("b"), ModelState::loading);
  work();
  ASSERT_TRUE(asked->lease);
  EXPECT_EQ(static_cast<Fake&>(*asked->lease).name, "b");
  EXPECT_EQ(state("b"), ModelState::loaded);
  EXPECT_EQ(state("a"), ModelState::unloaded);
  EXPECT_TRUE(ask("b")->lease) << "a loaded model is there at once";
  EXPECT_THAT(log, ElementsAre("+b"));
}

TEST_F(ModelPoolTest, RequestsThatComeTogetherLoadItOnce) {
  const auto first = ask("a"), second = ask("a"), third = ask("a");
  work();
  EXPECT_TRUE(first->lease && second->lease && third->lease);
  EXPECT_EQ(pool().status(0).requests, 3);
  EXPECT_THAT(log, ElementsAre("+a"));
}

TEST_F(ModelPoolTest, AnUnusedModelIsUnloadedAfterItsTime) {
  options.keep_seconds = 60;
  auto asked = ask("a");
  work();
  time += 1000;
  work();
  EXPECT_EQ(state("a"), ModelState::loaded) << "a request runs on it";
  asked->lease.reset();
  time += 59;
  work();
  EXPECT_EQ(state("a"), ModelState::loaded);
  EXPECT_NEAR(pool().status(0).keeps_seconds, 1, 1e-6);
  use("a");
  time += 59;
  work();
  EXPECT_EQ(state("a"), ModelState::loaded) << "the last use counts";
  time += 1;
  work();
  EXPECT_EQ(state("a"), ModelState::unloaded);
  EXPECT_THAT(log, ElementsAre("+a", "-a"));
  use("a");
  EXPECT_EQ(pool().status(0).loads, 2u);
}

TEST_F(ModelPoolTest, ARequestMayKeepAModelLongerOrShorter) {
  options.keep_seconds = 60;
  const auto forever = ask("a", -1), once = ask("b", 0);
  work();
  ASSERT_TRUE(forever->lease && once->lease);
  forever->lease.reset();
  once->lease.reset();
  work();
  EXPECT_EQ(state("b"), ModelState::unloaded);
  time += 1e9;
  work();
  EXPECT_EQ(state("a"), ModelState::loaded);
  use("a");
  time += 60;
  work();
  EXPECT_EQ(state("a"), ModelState::unloaded) << "the last request decides";
}

TEST_F(ModelPoolTest, LookingAtAModelIsNoUse) {
  options.keep_seconds = 60;
  EXPECT_FALSE(pool().look_at(0));
  use("a");
  time += 59;
  EXPECT_TRUE(pool().look_at(0));
  time += 1;
  const ModelLease looked = pool().look_at(0);
  work();
  EXPECT_EQ(state("a"), ModelState::loaded) << "it is not taken away from who looks";
}

TEST_F(ModelPoolTest, TheLeastRecentlyUsedIdleModelMakesRoom) {
  options.most_bytes = 20;
  use("a");
  time += 1;
  use("b");
  time += 1;
  use("a");
  use("c");
  EXPECT_THAT(log, ElementsAre("+a", "+b", "-b", "+c"));
}

TEST_F(ModelPoolTest, NoModelGoesWhileRequestsRunOnIt) {
  options.most_bytes = 20;
  const auto first = ask("a");
  work();
  time += 1;
  use("b");
  use("c");
  EXPECT_THAT(log, ElementsAre("+a", "+b", "-b", "+c")) << "a is older, but has a request";
  EXPECT_TRUE(first->lease);
}

TEST_F(ModelPoolTest, AModelThatNeedsRoomWaitsForRequestsAndNewOnesWaitForIt) {
  options.most_bytes = 10;
  const auto running = ask("a");
  work();
  const auto other = ask("b");
  work();
  EXPECT_FALSE(other->lease);
  const auto later = ask("a");
  EXPECT_FALSE(later->lease) << "a gives way to b";
  running->lease.reset();
  work();
  EXPECT_TRUE(other->lease);
  EXPECT_FALSE(later->lease);
  other->lease.reset();
  work();
  EXPECT_TRUE(later->lease);
  EXPECT_THAT(log, ElementsAre("+a", "-a", "+b", "-b", "+a"));
}

TEST_F(ModelPoolTest, ItDoesNotWaitForRequestsForever) {
  options.most_bytes = 10;
  options.patience_seconds = 60;
  const auto running = ask("a");
  work();
  const auto other = ask("b");
  work();
  const auto later = ask("a");
  time += 60;
  work();
  EXPECT_EQ(other->error, 503);
  EXPECT_THAT(other->message, HasSubstr("requests are still running on a"));
  EXPECT_TRUE(later->lease) << "a takes requests again";
  EXPECT_EQ(state("b"), ModelState::unloaded);
}

TEST_F(ModelPoolTest, AModelThatNeverFitsIsRefusedWithBothNumbers) {
  options.most_bytes = uint64_t{15} << 20;
  sizes["b"] = uint64_t{16} << 20;
  use("a");
  const auto asked = ask("b");
  work();
  EXPECT_EQ(asked->error, 503);
  EXPECT_THAT(asked->message, HasSubstr("needs 16.0 MiB, and all models together may have 15.0"));
  EXPECT_EQ(state("a"), ModelState::loaded) << "nothing was unloaded in vain";
}

TEST_F(ModelPoolTest, AFailedLoadIsToldToAllAndTriedAgain) {
  int attempts = 0;
  during_load = [&](const ModelPlace& place) {
    if (++attempts == 1) throw Error(ErrorCode::bad_input, place.path, "is broken");
  };
  const auto first = ask("a"), second = ask("a");
  work();
  for (const auto& asked : {first, second}) {
    EXPECT_EQ(asked->error, 500);
    EXPECT_THAT(asked->message, HasSubstr("'a' cannot be loaded: /models/a: is broken"));
  }
  EXPECT_EQ(state("a"), ModelState::failed);
  EXPECT_THAT(pool().status(0).error, HasSubstr("is broken"));
  use("a");
  EXPECT_EQ(state("a"), ModelState::loaded);
  EXPECT_EQ(pool().status(0).error, "");
  const auto unreadable = ask("unreadable");
  work();
  EXPECT_EQ(unreadable->error, 500);
}

TEST_F(ModelPoolTest, WhereTheDeviceRefusesAModelIdleOnesMakeRoom) {
  use("a");
  during_load = [&](const ModelPlace&) {
    if (state("a") == ModelState::loaded) throw Error(ErrorCode::limit, "memory", "is full");
  };
  use("b");
  EXPECT_THAT(log, ElementsAre("+a", "+b", "-a", "+b"));
  during_load = [](const ModelPlace&) { throw std::bad_alloc(); };
  const auto asked = ask("c");
  work();
  EXPECT_EQ(asked->error, 503);
  EXPECT_THAT(log, ElementsAre("+a", "+b", "-a", "+b", "+c", "-b", "+c"));
}

TEST_F(ModelPoolTest, OtherModelsAreThereWhileOneIsLoaded) {
  use("a");
  bool served = false;
  during_load = [&](const ModelPlace&) { served = static_cast<bool>(ask("a")->lease); };
  use("b");
  EXPECT_TRUE(served);
}

TEST_F(ModelPoolTest, WhoLeavesWaitsNoMore) {
  options.waiting = 2;
  const auto first = ask("a"), second = ask("b");
  EXPECT_THROW(ask("c"), ApiError);
  pool().forget(first->id);
  pool().forget(first->id);
  work();
  EXPECT_EQ(first->error, 503);
  EXPECT_TRUE(second->lease);
  EXPECT_THAT(log, ElementsAre("+b")) << "nobody wants a any more";
}

TEST_F(ModelPoolTest, OnlySoManyBytesWait) {
  options.waiting_bytes = 2;
  ask("a");
  ask("a");
  try {
    ask("a");
    FAIL();
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status(), 503);
  }
  work();
  EXPECT_TRUE(ask("a")->lease);
}

TEST_F(ModelPoolTest, AModelThatIsAskedToGoTakesNoNewRequests) {
  const auto running = ask("a");
  work();
  pool().unload(0);
  const auto later = ask("a");
  EXPECT_FALSE(later->lease);
  work();
  EXPECT_THAT(log, ElementsAre("+a"));
  running->lease.reset();
  work();
  EXPECT_TRUE(later->lease);
  EXPECT_THAT(log, ElementsAre("+a", "-a", "+a"));
}

TEST_F(ModelPoolTest, AfterDrainingAllThatWaitAreAnsweredAndNobodyElseIsServed) {
  const auto waiting = ask("a");
  pool().drain();
  EXPECT_EQ(waiting->error, 503);
  EXPECT_THROW(ask("b"), ApiError);
  work();
  EXPECT_THAT(log, IsEmpty());
}

TEST_F(ModelPoolTest, DrainingStopsALoadThatListens) {
  during_load = [&](const ModelPlace&) {
    pool_->drain();
    check_stop();
  };
  const auto asked = ask("a");
  std::thread([&] { pool().run(); }).join();
  EXPECT_EQ(asked->error, 503);
  EXPECT_EQ(state("a"), ModelState::unloaded);
}

TEST_F(ModelPoolTest, TwoModelsOfOneNameAreRefused) {
  EXPECT_THROW(ModelPool({{"x", "1"}, {"x", "2"}}, {}), Error);
  EXPECT_FALSE(pool().find("../a"));
  EXPECT_FALSE(pool().find(""));
}

}  // namespace
}  // namespace walsh
