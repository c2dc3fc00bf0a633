#include "serve/answer_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <map>

#include "grammar/free_text.h"
#include "grammar/json_rules.h"
#include "grammar/json_schema.h"
#include "grammar/tagged_object.h"
#include "serve/api_error.h"

namespace walsh {
namespace {

using grammar::FreeText;
using grammar::GraphBuilder;
using grammar::NodeId;
using grammar::RuleId;

// Builds the grammar of answers in one syntax.
class AnswerBuilder {
 public:
  AnswerBuilder(GraphBuilder& builder, const Tokenizer& tokenizer, const ChatSyntax& syntax,
                const ToolRequest& tools)
      : builder_(builder), tokenizer_(tokenizer), syntax_(syntax), tools_(tools) {}

  // Adds an answer of the required form, or tool calls.
  RuleId build(const std::optional<AnswerText>& text) {
    const RuleId root = builder_.rule("answer");
    const NodeId from = reasoning(builder_.start(root));
    if (tools_.any() && (tools_.required || text)) builder_.empty(calls(from), builder_.end(root));
    if (text && !tools_.required) {
      const bool harmony = syntax_.tools == ToolSyntax::harmony;
      const NodeId at = harmony ? marks(from, {"<|channel|>", "final", "<|message|>"}) : from;
      builder_.set_where(text->field);
      builder_.call(at, text->add_to(builder_), builder_.end(root));
    }
    return root;
  }

  // Adds any text, in which calls must be well-formed once they begin.
  RuleId watch() {
    strict_only_ = true;
    const RuleId root = builder_.rule("answer");
    const NodeId from = builder_.start(root), end = builder_.end(root), text = builder_.node();
    // Marks of calls inside the reasoning mean nothing.
    const auto think = [&](NodeId at) {
      const FreeText thoughts(builder_, {{syntax_.think_end, text}}, end);
      builder_.empty(at, thoughts.start());
    };
    if (!syntax_.thinking) builder_.empty(from, text);
    if (syntax_.thinking) think(from);
    if (!syntax_.think_begin.empty() && !syntax_.thinking && !syntax_.thought)
      think(mark(from, syntax_.think_begin));
    switch (syntax_.tools) {
      case ToolSyntax::harmony:
        watch_channels(text, end);
        break;
      case ToolSyntax::llama:
        watch_objects(text, end);
        break;
      default:
        watch_marks(text, end);
        break;
    }
    return root;
  }

 private:
  bool is_special(const std::string& text) const {
    const auto id = tokenizer_.token_id(text);
    return id && tokenizer_.is_special(*id);
  }
  // Adds a text that may be a special token.
  NodeId mark(NodeId from, const std::string& text) {
    return builder_.text(from, is_special(text) ? grammar::kSpecialMark + text : text);
  }
  NodeId marks(NodeId from, const std::vector<std::string>& texts) {
    for (const std::string& text : texts)
      from = mark(from, text);
    return from;
  }
  NodeId until(NodeId from, const std::string& text) {
    if (!is_special(text)) return builder_.until(from, text);
    const NodeId loop = builder_.node();
    builder_.empty(from, loop);
    builder_.one_of(loop, grammar::complement({}), loop);
    return mark(loop, text);
  }

  // Adds the optional reasoning and returns the node after it.
  NodeId reasoning(NodeId from) {
    const NodeId to = builder_.node();
    if (syntax_.tools == ToolSyntax::harmony) {
      builder_.empty(from, to);
      const NodeId text = marks(from, {"<|channel|>", "analysis", "<|message|>"});
      builder_.empty(marks(until(text, "<|end|>"), {"<|start|>", "assistant"}), to);
      return to;
    }
    if (!syntax_.thinking) builder_.empty(from, to);
    if (syntax_.think_end.empty() || syntax_.thought) return to;
    NodeId at = syntax_.thinking ? from : mark(from, syntax_.think_begin);
    at = until(at, syntax_.think_end);
    for (int i = 0; i < 3; ++i) {
      builder_.empty(at, to);
      at = builder_.text(at, "\n");
    }
    return to;
  }

  bool enforced(size_t index) const { return !strict_only_ || tools_.strict(index); }
  // Returns the schema of a tool's arguments, which is an object.
  OrderedJson parameters(size_t index) const {
    const OrderedJson& function = tools_.tools[index]["function"];
    OrderedJson schema = OrderedJson::object();
    if (enforced(index) && function.contains("parameters") && function["parameters"].is_object())
      schema = function["parameters"];
    if (!schema.contains("type") && !schema.contains("$ref")) schema["type"] = "object";
    return schema;
  }
  // Returns the rule for a tool's arguments as JSON.
  RuleId arguments(size_t index) {
    const OrderedJson schema = parameters(index);
    builder_.set_where(fmt::format("tools[{}].function.parameters", index));
    return add_json_schema(builder_, schema);
  }
  std::string name(size_t index) const {
    return tools_.tools[index]["function"]["name"].get<std::string>();
  }

  // Adds one call of any tool as JSON, {"name": ..., `key`: ...}.
  NodeId json_call(NodeId from, const char* key) {
    const NodeId to = builder_.node();
    for (size_t i = 0; i < tools_.tools.size(); ++i) {
      const NodeId at = builder_.text(from, fmt::format(R"({{"name": "{}", "{}": )", name(i), key));
      builder_.empty(builder_.text(builder_.call(at, arguments(i)), "}"), to);
    }
    return to;
  }

  // Adds a call, followed by further ones after `between` if several are allowed.
  NodeId repeated(NodeId from, RuleId call, const std::string& between) {
    const NodeId to = builder_.call(from, call);
    if (tools_.parallel) builder_.call(builder_.text(to, between), call, to);
    return to;
  }

  // The first returns the mark before a call, the second the text between two calls.
  const std::string& opening() const { return syntax_.call_begins.front(); }
  const char* between() const { return syntax_.tools == ToolSyntax::mistral_named ? "" : "\n"; }

  // Adds the rest of a call, or of a list of calls, after the opening mark.
  NodeId opened(NodeId from) {
    const NodeId to = builder_.node();
    if (syntax_.tools == ToolSyntax::hermes) {
      const NodeId behind = builder_.text(json_call(builder_.text(from, "\n"), "arguments"), "\n");
      builder_.empty(mark(behind, syntax_.call_end), to);
    } else if (syntax_.tools == ToolSyntax::qwen) {
      const NodeId begin = builder_.text(from, "\n");
      for (size_t i = 0; i < tools_.tools.size(); ++i) {
        const NodeId call = qwen_call(begin, "<function=", i);
        builder_.empty(mark(builder_.text(call, "\n"), syntax_.call_end), to);
      }
    } else if (syntax_.tools == ToolSyntax::glm) {
      for (size_t i = 0; i < tools_.tools.size(); ++i)
        builder_.empty(glm_call(from, i), to);
    } else if (syntax_.tools == ToolSyntax::mistral) {
      const RuleId call = builder_.rule("call");
      builder_.empty(json_call(builder_.start(call), "arguments"), builder_.end(call));
      builder_.empty(builder_.text(repeated(builder_.text(from, "["), call, ", "), "]"), to);
    } else {
      for (size_t i = 0; i < tools_.tools.size(); ++i)
        builder_.call(mark(builder_.text(from, name(i)), "[ARGS]"), arguments(i), to);
    }
    return to;
  }
  // Returns a call with its marks, repeated if several are allowed.
  RuleId marked_call() {
    const RuleId call = builder_.rule("call");
    builder_.empty(opened(mark(builder_.start(call), opening())), builder_.end(call));
    return call;
  }

  NodeId calls(NodeId from) {
    if (syntax_.tools == ToolSyntax::llama) return json_call(from, "parameters");
    if (syntax_.tools == ToolSyntax::mistral) return opened(mark(from, opening()));
    if (syntax_.tools != ToolSyntax::harmony) return repeated(from, marked_call(), between());
    const NodeId to = builder_.node();
    for (size_t i = 0; i < tools_.tools.size(); ++i) {
      const NodeId at = builder_.text(marks(from, {"<|channel|>", "commentary"}),
                                      fmt::format(" to=functions.{} ", name(i)));
      const NodeId value = marks(builder_.text(mark(at, "<|constrain|>"), "json"), {"<|message|>"});
      builder_.call(value, arguments(i), to);
    }
    return to;
  }

  void watch_marks(NodeId from, NodeId end) {
    const NodeId called = builder_.node();
    builder_.empty(called, end);
    if (tools_.parallel && syntax_.tools != ToolSyntax::mistral)
      builder_.call(builder_.text(called, between()), marked_call(), called);
    std::vector<FreeText::Mark> begins;
    for (const std::string& text : syntax_.call_begins) {
      begins.push_back({text, builder_.node()});
      if (text == "<function=") {  // the mark around the function is omitted
        for (size_t i = 0; i < tools_.tools.size(); ++i)
          builder_.empty(qwen_call(begins.back().behind, "", i), end);
      } else {
        builder_.empty(opened(begins.back().behind), called);
      }
    }
    builder_.empty(from, FreeText(builder_, begins, end).start());
  }

  // Watches for calls of harmony, in which a call is a message whose header names a function.
  void watch_channels(NodeId from, NodeId end) {
    const NodeId message = builder_.node(), function = builder_.node(), called = builder_.node();
    const FreeText header(builder_, {{"to=functions.", function}, {"<|message|>", message}}, end);
    builder_.empty(from, header.start());
    std::vector<FreeText::Mark> ends;
    for (const char* text : {"<|end|>", "<|start|>", "<|call|>", "<|return|>"})
      ends.push_back({text, header.start()});
    builder_.empty(message, FreeText(builder_, ends, end).start());
    for (size_t i = 0; i < tools_.tools.size(); ++i) {
      const NodeId value = builder_.node();
      FreeText rest(builder_, {{"<|message|>", value}}, std::nullopt);
      rest.join(builder_.text(function, name(i)), name_bytes());
      builder_.call(value, arguments(i), called);
    }
    builder_.empty(called, end);
    builder_.empty(mark(called, "<|call|>"), end);
  }

  // Watches for calls that are a JSON object before any other text, or after a tag, and begin with
  // a tool's name.
  void watch_objects(NodeId from, NodeId end) {
    FreeText text(builder_, {{"<|python_tag|>", from}}, end);
    std::bitset<256> spaces;
    for (const char c : {' ', '\n', '\r', '\t'})
      spaces.set(static_cast<uint8_t>(c));
    std::map<NodeId, std::bitset<256>> known;  // a call may continue with these bytes
    std::map<std::pair<NodeId, char>, NodeId> tree;
    const auto step = [&](NodeId at, char c) {
      const auto [place, added] = tree.try_emplace({at, c}, 0);
      if (!added) return place->second;
      known[at].set(static_cast<uint8_t>(c));
      builder_.byte(at, static_cast<uint8_t>(c), static_cast<uint8_t>(c),
                    place->second = builder_.node());
      return place->second;
    };
    const auto steps = [&](NodeId at, std::string_view read) {
      for (const char c : read)
        at = step(at, c);
      return at;
    };
    const auto space = [&](NodeId at) {
      known[at] |= spaces;
      for (const char c : {' ', '\n', '\r', '\t'})
        builder_.byte(at, static_cast<uint8_t>(c), static_cast<uint8_t>(c), at);
      return at;
    };
    NodeId at = space(steps(space(from), "{"));
    at = space(steps(space(steps(at, "\"name\"")), ":"));
    const NodeId names = steps(at, "\"");
    std::map<NodeId, std::vector<size_t>> called;
    for (size_t i = 0; i < tools_.tools.size(); ++i)
      called[steps(names, name(i) + "\"")].push_back(i);
    for (const auto& [node, except] : known) {
      text.join(node, except);
      builder_.empty(node, end);
    }
    for (const auto& [node, tools] : called)
      for (const size_t i : tools)
        builder_.empty(
            builder_.text(builder_.call(builder_.text(node, ", \"parameters\": "), arguments(i)),
                          "}"),
            end);
  }

  static std::bitset<256> name_bytes() {
    std::bitset<256> bytes;
    for (const char c : kNameLetters)
      bytes.set(static_cast<uint8_t>(c));
    return bytes;
  }

  // Adds parameters in the order of the schema; strings are literal, and other values are JSON.
  // `key` adds the beginning of a member at a node; `gap` surrounds its value, `between` separates
  // members and `end` follows the last.
  template <typename Key>
  NodeId tagged_members(NodeId from, size_t index, const std::string& gap, const std::string& end,
                        Key key, const std::string& between) {
    const OrderedJson schema = parameters(index);
    builder_.set_where(fmt::format("tools[{}].function.parameters", index));
    const NodeId last = builder_.node();
    for (const auto& members : grammar::add_tagged_object(builder_, schema, end, gap)) {
      NodeId at = from;
      for (const grammar::TaggedMember& member : members) {
        const NodeId next = builder_.node();
        if (!member.required) builder_.empty(at, next);
        const NodeId value = builder_.text(key(at, member.name), gap);
        builder_.empty(builder_.text(builder_.call(value, member.value), between), next);
        at = next;
      }
      builder_.empty(at, last);
    }
    return last;
  }

  NodeId qwen_call(NodeId from, const char* begin, size_t index) {
    if (!enforced(index))
      return any_call(builder_.text(from, fmt::format("{}{}>", begin, name(index))), {},
                      "</function>");
    const NodeId first = builder_.text(from, fmt::format("{}{}>\n", begin, name(index)));
    const auto key = [&](NodeId at, const std::string& name) {
      return builder_.text(at, fmt::format("<parameter={}>", name));
    };
    return builder_.text(
        tagged_members(first, index, syntax_.value_space, "</parameter>", key, "\n"),
        "</function>");
  }

  // Adds a call with the mark after it. Tags may be special tokens, with line ends between them.
  NodeId glm_call(NodeId from, size_t index) {
    if (!enforced(index))
      return any_call(builder_.text(from, name(index)), name_bytes(), syntax_.call_end);
    const auto line_end = [&](NodeId at) {
      const NodeId next = builder_.text(at, "\n");
      builder_.empty(at, next);
      return next;
    };
    const NodeId first = line_end(builder_.text(from, name(index)));
    const auto key = [&](NodeId at, const std::string& name) {
      at = mark(builder_.text(mark(line_end(at), "<arg_key>"), name), "</arg_key>");
      return mark(line_end(at), "<arg_value>");
    };
    return mark(line_end(tagged_members(first, index, "", "</arg_value>", key, "")),
                syntax_.call_end);
  }

  // Adds any text after the name of a call, up to `end`. Its first byte is not in `except`.
  NodeId any_call(NodeId from, const std::bitset<256>& except, const std::string& end) {
    const NodeId to = builder_.node();
    FreeText text(builder_, {{end, to}}, std::nullopt);
    text.join(from, except);
    return to;
  }

  GraphBuilder& builder_;
  const Tokenizer& tokenizer_;
  const ChatSyntax& syntax_;
  const ToolRequest& tools_;
  bool strict_only_ = false;  // other tools accept any object as arguments
};

template <typename Make>
std::shared_ptr<const grammar::TokenGrammar> grammar_of(const LoadedModel& model,
                                                        const std::string& key,
                                                        const std::string& field, Make make) {
  const std::string param = field.substr(0, field.find_first_of(".["));
  try {
    return model.grammars->get(model.tokenizer, model.model.config.vocab, key, field, make);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::interrupted) throw;
    throw ApiError(400, e.what(), param);
  }
}

}  // namespace

std::shared_ptr<const grammar::TokenGrammar> chat_grammar(const LoadedModel& model,
                                                          const ChatSyntax& syntax,
                                                          const ToolRequest& tools,
                                                          const std::optional<AnswerText>& text,
                                                          const std::string& owner) {
  const bool watch = !text && !tools.required && tools.any_strict();
  if (!text && !tools.required && !watch) return nullptr;
  const std::string key = fmt::format(
      "chat {} {} {} {} {} {} {} {} {} {}", owner, static_cast<int>(syntax.tools),
      syntax.call_begins.empty() ? "" : syntax.call_begins[0], syntax.think_begin, syntax.thinking,
      syntax.thought, tools.required, tools.parallel, tools.tools.dump(), text ? text->key() : "");
  return grammar_of(model, key, text && !tools.required ? text->field : "tools", [&] {
    GraphBuilder builder("answer");
    AnswerBuilder answer(builder, model.tokenizer, syntax, tools);
    const RuleId root = watch ? answer.watch() : answer.build(text);
    return builder.finish(root);
  });
}

std::shared_ptr<const grammar::TokenGrammar> text_grammar(const LoadedModel& model,
                                                          const std::optional<AnswerText>& text,
                                                          const std::string& owner) {
  if (!text) return nullptr;
  return grammar_of(model, "text " + owner + " " + text->key(), text->field, [&] {
    GraphBuilder builder(text->field);
    const RuleId root = text->add_to(builder);
    return builder.finish(root);
  });
}

}  // namespace walsh
