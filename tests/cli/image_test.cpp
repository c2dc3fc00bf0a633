// Tests the pictures that `walsh run` shows a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"
#include "io/json.h"

namespace walsh {
namespace {

using testing::HasSubstr;

const std::string kVision = std::string(WALSH_TEST_DATA) + "/vision/";

std::string image(const std::string& name) {
  return kVision + "images/" + name;
}

class ImageCommand : public CommandTest {
 protected:
  static std::string seeing() { return kVision + "mistral3-chat"; }

  CommandResult run(const std::vector<std::string>& more, const std::string& input = "") {
    spill(file("input"), input);
    std::vector<std::string> arguments = {"run", seeing(),       "--temp", "0",  "-n",
                                          "8",   "--ignore-eos", "-c",     "200"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return walsh(arguments, "", "< " + quoted(file("input")));
  }
  std::string text(const std::vector<std::string>& more, const std::string& input = "") {
    const CommandResult result = run(more, input);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  }
};

TEST_F(ImageCommand, AnAnswerDependsOnThePicture) {
  const std::string turned = text({"-p", "Look", "--image", image("turned.jpg")});
  const std::string alpha = text({"-p", "Look", "--image", image("alpha.png")});
  EXPECT_NE(turned, alpha);
  EXPECT_NE(turned, text({"-p", "Look"}));
  EXPECT_EQ(turned, text({"-p", "Look", "--image", image("turned.jpg"), "--no-stream", "-t", "1"}));
  const CommandResult two =
      run({"-p", "Compare", "--image", image("alpha.png"), "--image", image("lossy.webp")});
  EXPECT_EQ(two.status, 0) << two.err;
  const Json chats = parse_json(slurp(seeing() + "/chats.json"), "chats");
  EXPECT_THAT(two.err, HasSubstr(fmt::format("prompt {} tokens", chats[2]["input_ids"].size())));
}

TEST_F(ImageCommand, AConversationShowsPicturesWithTheNextMessage) {
  const std::string one = text({"-p", "Look", "--image", image("turned.jpg")});
  EXPECT_EQ(text({"-cnv"}, "/image " + image("turned.jpg") + "\nLook\n"), one);
  EXPECT_EQ(text({"-cnv", "--image", image("turned.jpg")}, "Look\n"), one);
  // Earlier pictures stay in the conversation, which /retry repeats.
  const std::string more = "/image " + image("turned.jpg") + "\nLook\n/retry\nAgain\n";
  const std::string all = text({"-cnv"}, more);
  EXPECT_TRUE(all.starts_with(one + one)) << all;
  EXPECT_NE(all, text({"-cnv"}, "Look\n/retry\nAgain\n"));
}

TEST_F(ImageCommand, APictureThatCannotBeShownTakesItsMessageBack) {
  spill(file("notes.png"), "a text");
  const std::string plain = text({"-cnv"}, "Look\n");
  const CommandResult result = run({"-cnv"}, "/image " + file("notes.png") + "\nLook\nLook\n");
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("image 1"));
  EXPECT_EQ(result.out, plain);
  const CommandResult saved =
      run({"-cnv", "--image", image("alpha.png")},
          "Look\n/save " + file("talk.json") + "\n/clear\nLook\n/save " + file("talk.json") + "\n");
  EXPECT_EQ(saved.status, 2) << saved.err;
  EXPECT_THAT(saved.err, HasSubstr("conversations with images are not saved"));
  EXPECT_THAT(saved.err, HasSubstr("saved 2 messages"));
}

TEST_F(ImageCommand, RawPromptsHaveThePlaceholder) {
  const std::string prompt = "<s>[user][IMG]Look[assistant]";
  for (const char* name : {"alpha.png", "turned.jpg"})
    EXPECT_EQ(text({"--raw", "--no-display-prompt", "-p", prompt, "--image", image(name)}),
              text({"-p", "Look", "--image", image(name)}))
        << name;
  const CommandResult none = run({"--raw", "-p", "b", "--image", image("alpha.png")});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("0 places for images"));
}

TEST_F(ImageCommand, WhatCannotBeShownIsNamed) {
  expect_error(walsh({"run", model(), "-p", "a", "--image", image("alpha.png"), "--quiet"}), 2,
               "--image: the model takes no images");
  // A note of the other models says which tensors are left out.
  const auto refused = [](const CommandResult& result, int status, const std::string& reason) {
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_THAT(result.err, HasSubstr("walsh: error: " + reason));
    EXPECT_EQ(result.out, "");
  };
  refused(run({"-p", "a", "--image", file("none.png")}), 5, file("none.png"));
  spill(file("cut.jpg"), slurp(image("turned.jpg")).substr(0, 300));
  refused(run({"-p", "a", "--image", file("cut.jpg")}), 3, "image 1");
  refused(run({"-p", "a", "--image", image("animated.webp")}), 3, "image 1");
}

}  // namespace
}  // namespace walsh
