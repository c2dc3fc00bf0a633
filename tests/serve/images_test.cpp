// Tests images in the messages of all chat interfaces: answers against transformers
// (tools/make_vision_goldens.py), and every refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "serve/chat_prompt.h"
#include "serve/image_parts.h"
#include "serve/service_fixture.h"

namespace walsh {
namespace {

using test::ServiceTest;
using testing::HasSubstr;

const std::string kVision = std::string(WALSH_TEST_DATA) + "/vision/";
const std::string kSeeing = kVision + "mistral3-chat";

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string to_base64(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return text;
}

std::string image(const std::string& name) {
  return to_base64(content_of(kVision + "images/" + name));
}

std::string url_of(const std::string& name) {
  return "data:image/png;base64," + image(name);
}

Json part_of(const std::string& url) {
  return {{"type", "image_url"}, {"image_url", {{"url", url}}}};
}

Json text_part(const std::string& text) {
  return {{"type", "text"}, {"text", text}};
}

// Returns a greedy request for a message.
Json asking(Json content) {
  Json message = {{"role", "user"}, {"content", std::move(content)}};
  return {{"messages", Json::array({message})},
          {"temperature", 0},
          {"max_tokens", 8},
          {"ignore_eos", true}};
}

class ServiceImages : public ServiceTest {
 protected:
  ServiceImages()
      : ServiceTest(kSeeing), chats_(parse_json(content_of(kSeeing + "/chats.json"), "chats")) {
    service_ = make(make_chat_prompt(*loaded_.chat));
  }

  static Json request_of(const Json& chat) {
    Json content = Json::array();
    for (const Json& name : chat["images"])
      content.push_back(part_of(url_of(name)));
    content.push_back(text_part(chat["text"]));
    return asking(content);
  }
  // Expects that a chat with one image is refused, and returns the error.
  Json refusal(const Json& part) {
    const auto reply = post("/v1/chat/completions", asking(Json::array({part, text_part("Look")})));
    EXPECT_EQ(reply->response.status, 400) << reply->response.body;
    const Json answer = reply->json();
    return answer.contains("error") ? answer["error"] : Json{{"message", ""}, {"param", ""}};
  }
  Json answer(const std::string& path, const Json& body) {
    const auto reply = post(path, body);
    EXPECT_EQ(reply->response.status, 200) << reply->response.body;
    return reply->json();
  }

  Json chats_;
};

TEST_F(ServiceImages, ChatsAreAnsweredAsByTransformers) {
  for (const Json& chat : chats_) {
    Json body = request_of(chat);
    body["return_token_ids"] = true;
    const Json got = answer("/v1/chat/completions", body);
    EXPECT_EQ(got["prompt_token_ids"], chat["input_ids"]);
    EXPECT_EQ(got["choices"][0]["token_ids"], chat["tokens"]);
    EXPECT_EQ(got["usage"]["prompt_tokens"], chat["input_ids"].size());
  }
}

TEST_F(ServiceImages, AllInterfacesTakeThem) {
  const Json& chat = chats_[2];
  const std::string text =
      answer("/v1/chat/completions", request_of(chat))["choices"][0]["message"]["content"];
  Json blocks = Json::array(), parts = Json::array(), files = Json::array();
  for (const Json& name : chat["images"]) {
    blocks.push_back(
        {{"type", "image"},
         {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", image(name)}}}});
    parts.push_back({{"type", "input_image"}, {"image_url", url_of(name)}});
    files.push_back(image(name));
  }
  blocks.push_back(text_part(chat["text"]));
  parts.push_back({{"type", "input_text"}, {"text", chat["text"]}});

  Json body = asking(blocks);
  EXPECT_EQ(answer("/v1/messages", body)["content"][0]["text"], text);
  EXPECT_EQ(answer("/v1/messages/count_tokens", body)["input_tokens"], chat["input_ids"].size());

  body = asking(parts);
  body["input"] = body["messages"];
  body.erase("messages");
  body["max_output_tokens"] = body["max_tokens"];
  const Json response = answer("/v1/responses", body);
  EXPECT_EQ(response["output"].back()["content"][0]["text"], text);

  body = asking(chat["text"]);
  body["messages"][0]["images"] = files;
  body["stream"] = false;
  body["options"] = {{"temperature", 0}, {"num_predict", 8}, {"ignore_eos", true}};
  EXPECT_EQ(answer("/api/chat", body)["message"]["content"], text);
  body["prompt"] = chat["text"];
  body["images"] = files;
  body.erase("messages");
  EXPECT_EQ(answer("/api/generate", body)["response"], text);

  EXPECT_EQ(answer("/v1/chat/completions/input_tokens", request_of(chat))["input_tokens"],
            chat["input_ids"].size());
  EXPECT_EQ(answer("/apply-template", request_of(chat))["prompt"], chat["prompt"]);
}

TEST_F(ServiceImages, APartMayBeAStringAndABase64TextMayLackItsEnd) {
  const std::string expected =
      answer("/v1/chat/completions", request_of(chats_[0]))["choices"][0]["message"]["content"];
  std::string url = url_of("turned.jpg");
  while (url.ends_with('='))
    url.pop_back();
  const Json part = {{"type", "image_url"}, {"image_url", url}};
  const Json got =
      answer("/v1/chat/completions", asking(Json::array({part, text_part(chats_[0]["text"])})));
  EXPECT_EQ(got["choices"][0]["message"]["content"], expected);
}

TEST_F(ServiceImages, PrefixesAreSharedByContentAndOwner) {
  const auto cached = [&](const Json& body) {
    return answer("/v1/chat/completions", body)["usage"]["prompt_tokens_details"]["cached_tokens"]
        .get<int64_t>();
  };
  Json body = request_of(chats_[0]);
  EXPECT_EQ(cached(body), 0);
  EXPECT_GT(cached(body), 30);
  body["cache_salt"] = "another";
  EXPECT_EQ(cached(body), 0);
  // The prompt's tokens begin in the same way, but the first rows are those of another image.
  Json two = request_of(chats_[2]), turned = two;
  EXPECT_LT(cached(two), 10);
  std::swap(turned["messages"][0]["content"][0], turned["messages"][0]["content"][1]);
  EXPECT_LT(cached(turned), 10);
}

TEST_F(ServiceImages, WhatIsNoImageIsRefused) {
  const std::pair<std::string, const char*> urls[] = {
      {"https://example.com/a.png", "a data: URL"},
      {"file:///etc/passwd", "a data: URL"},
      {"data:image/png;base64", "comma"},
      {"data:image/png,AAAA", "in base64"},
      {"data:image/png;base64,", "empty"},
      {"data:image/png;base64,AA*A", "byte 2"},
      {"data:image/png;base64,AAAAA", "end is missing"},
      {"data:text/plain;base64,AAAA", "an image: JPEG, PNG or WebP"},
      {"data:image/png;base64," + to_base64("a text"), "image 1"},
      {"data:image/jpeg;base64," +
           to_base64(content_of(kVision + "images/turned.jpg").substr(0, 300)),
       "image 1"},
      {url_of("animated.webp"), "image 1"},
      {"data:;base64," + to_base64(std::string((32 << 20) + 1, 'x')), "image 1"},
  };
  for (const auto& [url, reason] : urls)
    EXPECT_THAT(refusal(part_of(url))["message"].get<std::string>(), HasSubstr(reason))
        << url.substr(0, 60);
  const Json parts[] = {{{"type", "image_url"}},
                        {{"type", "image_url"}, {"image_url", 3}},
                        {{"type", "image_url"}, {"image_url", {{"file", "a"}}}},
                        {{"type", "image"}},
                        {{"type", "input_audio"}}};
  for (const Json& part : parts)
    EXPECT_THAT(refusal(part)["param"].get<std::string>(), HasSubstr("messages[0].content[0]"))
        << part;
}

TEST_F(ServiceImages, TheirNumberIsLimited) {
  Json content(33, part_of(url_of("alpha.png")));
  auto reply = post("/v1/chat/completions", asking(content));
  EXPECT_EQ(reply->response.status, 400);
  EXPECT_THAT(reply->response.body, HasSubstr("at most 32 images"));
  content = Json(12, part_of(url_of("turned.jpg")));  // 25 positions and more each, of 256
  reply = post("/v1/chat/completions", asking(content));
  EXPECT_EQ(reply->response.status, 400);
  EXPECT_EQ(reply->json()["error"]["code"], "context_length_exceeded");
  const auto places = post("/v1/chat/completions",
                           asking(Json::array({part_of(url_of("alpha.png")), text_part("[IMG]")})));
  EXPECT_EQ(places->response.status, 400);
  EXPECT_THAT(places->response.body, HasSubstr("2 places for images"));
}

TEST_F(ServiceImages, OllamaNamesItsField) {
  const auto refusal = [&](const Json& images) {
    Json body = asking("Look");
    body["messages"][0]["images"] = images;
    const auto reply = post("/api/chat", body);
    EXPECT_EQ(reply->response.status, 400) << reply->response.body;
    return reply->json()["error"].get<std::string>();
  };
  EXPECT_THAT(refusal("AA"), HasSubstr("messages[0].images"));
  EXPECT_THAT(refusal(Json::array({3})), HasSubstr("messages[0].images[0]"));
  EXPECT_THAT(refusal(Json::array({"http://a"})), HasSubstr("base64"));
  EXPECT_THAT(refusal(Json::array({to_base64("text")})), HasSubstr("image 1"));
  const auto raw = post("/api/generate", {{"prompt", "a"}, {"raw", true}, {"images", {"AAAA"}}});
  EXPECT_EQ(raw->response.status, 400);
}

TEST_F(ServiceImages, TheModelSaysThatItTakesThem) {
  EXPECT_EQ(ask("GET", "/v1/models")->json()["data"][0]["input_modalities"],
            Json::array({"text", "image"}));
  EXPECT_EQ(ask("GET", "/props")->json()["modalities"]["vision"], true);
  EXPECT_THAT(post("/api/show", {{"model", "tiny"}})->json()["capabilities"].dump(),
              HasSubstr("vision"));
}

TEST_F(ServiceTest, ImagesForAModelWithoutATowerAreRefusedWithTheReason) {
  service_ = make(make_chat_prompt(*loaded_.chat));
  const Json source = {{"type", "base64"}, {"media_type", "image/png"}, {"data", "AAAA"}};
  const Json block = {{"type", "image"}, {"source", source}};
  const Json part = {{"type", "input_image"}, {"image_url", url_of("alpha.png")}};
  Json ollama = asking("Look");
  ollama["messages"][0]["images"] = {image("alpha.png")};
  const std::pair<const char*, Json> cases[] = {
      {"/v1/chat/completions", asking(Json::array({part_of(url_of("alpha.png"))}))},
      {"/v1/messages", asking(Json::array({block}))},
      {"/v1/responses", {{"input", asking(Json::array({part}))["messages"]}}},
      {"/api/chat", ollama},
  };
  for (const auto& [path, body] : cases) {
    const auto reply = post(path, body);
    EXPECT_EQ(reply->response.status, 400) << path;
    EXPECT_THAT(reply->response.body, HasSubstr("the model takes no images")) << path;
  }
  EXPECT_EQ(ask("GET", "/v1/models")->json()["data"][0]["input_modalities"], Json::array({"text"}));
  EXPECT_EQ(ask("GET", "/props")->json()["modalities"]["vision"], false);
}

TEST(ImageParts, Base64IsDecodedExactly) {
  EXPECT_EQ(decoded_base64("Zm9vYg==", ""), "foob");
  EXPECT_EQ(decoded_base64("Zm9vYmE", ""), "fooba");
  EXPECT_EQ(decoded_base64("Zm9vYmFy", ""), "foobar");
  EXPECT_EQ(decoded_base64("+/8=", ""), "\xfb\xff");
  for (const char* wrong : {"", "=", "A", "Zm9vY", "Zm9v\n", "Zm9v-_", "Zg===", "=Zg="})
    EXPECT_THROW(decoded_base64(wrong, ""), ApiError) << wrong;
}

}  // namespace
}  // namespace walsh
