// SPDX-License-Identifier: Apache-2.0
//! The usage of language models: the places where the responses of each provider state it, the price of a token of each kind, and what a
//! request reserves before its response says anything.
//!
//! A preset is a list of paths, and nothing else knows providers. If several paths lead to one count, the last number in the response
//! counts, so that a stream may say a count many times, and each time more.
//!
//! A stream that is cut off has said its last number before its end. [`Usage::used`] counts what it has delivered then.

use std::borrow::Cow;
use std::rc::Rc;

use crate::body::{MAX_PATHS, MAX_VALUES, Millionths, Paths, Scanner, Value, Weight, weigh};
use crate::request::{Request, Unreadable};

/// The presets that a path belongs to: a bit for each.
pub type Providers = u8;

/// OpenAI's chat completions, responses and embeddings, and what sends the same with fields of its own, such as vLLM, DeepSeek or Groq.
pub const OPENAI: Providers = 1;
/// Anthropic's messages.
pub const ANTHROPIC: Providers = 2;
/// Gemini's `generateContent` and `streamGenerateContent`.
pub const GEMINI: Providers = 4;
/// Bedrock's `Converse` and `ConverseStream`, and `InvokeModel` of Amazon's Nova and Anthropic's models.
pub const BEDROCK: Providers = 8;
/// Ollama's own API.
pub const OLLAMA: Providers = 16;
/// All of them. Where a gateway mixes the fields of several, each token counts once.
pub const AUTO: Providers = OPENAI | ANTHROPIC | GEMINI | BEDROCK | OLLAMA;

/// The kind of a count in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Count {
    /// Tokens of input.
    Input,
    /// Tokens of input that were read from a cache, and are counted as input, too.
    CachedWithin,
    /// Tokens of input that were read from a cache, and are not counted as input.
    CachedBeside,
    /// Tokens of input that were written to a cache, and are not counted as input.
    Written,
    /// Tokens of input that were written to a cache, and are counted as input, too.
    WrittenWithin,
    /// Those of the tokens written to a cache that stay for an hour.
    WrittenHour,
    /// Tokens of input that tools have made, and that are not counted as input.
    Tools,
    /// Tokens of output.
    Output,
    /// Tokens of output, said before there is any.
    Begun,
    /// Tokens of output that were thought and not said, and are counted as output, too.
    ReasonedWithin,
    /// Tokens of output that were thought and not said, and are not counted as output.
    ReasonedBeside,
    /// All tokens, where those of output may be more than the output that is stated.
    Total,
    /// The name of the model: no count.
    Model,
    /// Some of the output: more of it may follow, unless the output ends beside it. No count.
    Said,
    /// The output ends. No count.
    Ended,
    /// A thought begins: the provider may count more of it than it says. No count.
    Hidden,
    /// The time for which the first of the parts written to a cache stays: the longest. No count.
    FirstStays,
    /// The tokens of that part: some of [`Written`](Self::Written).
    FirstWritten,
    /// [`Input`](Self::Input) of one of several steps. These counts add up.
    StepInput = MAX_PATHS as u8,
    /// [`CachedBeside`](Self::CachedBeside) of a step.
    StepCached,
    /// [`Written`](Self::Written) of a step.
    StepWritten,
    /// [`Output`](Self::Output) of a step.
    StepOutput,
}

use Count::{
    Begun, CachedBeside, CachedWithin, Ended, FirstStays, FirstWritten, Hidden, Input, Model, Output,
    ReasonedBeside, ReasonedWithin, Said, StepCached, StepInput, StepOutput, StepWritten, Tools, Total,
    Written, WrittenHour, WrittenWithin,
};

/// The paths at which responses, or the items of a response that is an array, state their usage.
#[rustfmt::skip]
pub const PATHS: [(Providers, Count, &str); 56] = [
    (OPENAI, Input, "usage.prompt_tokens"),
    (OPENAI, CachedWithin, "usage.prompt_tokens_details.cached_tokens"),
    (OPENAI, WrittenWithin, "usage.prompt_tokens_details.cache_write_tokens"),
    (OPENAI, Output, "usage.completion_tokens"),
    (OPENAI, ReasonedWithin, "usage.completion_tokens_details.reasoning_tokens"),
    (OPENAI | ANTHROPIC | BEDROCK, Input, "usage.input_tokens"),
    (OPENAI, CachedWithin, "usage.input_tokens_details.cached_tokens"),
    (OPENAI, WrittenWithin, "usage.input_tokens_details.cache_write_tokens"),
    (OPENAI | ANTHROPIC | BEDROCK, Output, "usage.output_tokens"),
    (OPENAI, ReasonedWithin, "usage.output_tokens_details.reasoning_tokens"),
    (OPENAI, Input, "response.usage.input_tokens"),
    (OPENAI, CachedWithin, "response.usage.input_tokens_details.cached_tokens"),
    (OPENAI, WrittenWithin, "response.usage.input_tokens_details.cache_write_tokens"),
    (OPENAI, Output, "response.usage.output_tokens"),
    (OPENAI, ReasonedWithin, "response.usage.output_tokens_details.reasoning_tokens"),
    // xAI, and Gemini by OpenAI's API, do not count thoughts as output. Mistral does not count what its connectors read as input.
    (OPENAI, Total, "usage.total_tokens"),
    (OPENAI, Tools, "usage.connector_tokens"),
    // Qwen; DeepSeek; Moonshot, also in a stream; Groq in a stream.
    (OPENAI, WrittenWithin, "usage.prompt_tokens_details.cache_creation_input_tokens"),
    (OPENAI, CachedWithin, "usage.prompt_cache_hit_tokens"),
    (OPENAI, CachedWithin, "usage.cached_tokens"),
    (OPENAI, Input, "choices[*].usage.prompt_tokens"),
    (OPENAI, CachedWithin, "choices[*].usage.cached_tokens"),
    (OPENAI, Output, "choices[*].usage.completion_tokens"),
    (OPENAI, Input, "x_groq.usage.prompt_tokens"),
    (OPENAI, Output, "x_groq.usage.completion_tokens"),
    (OPENAI | ANTHROPIC | BEDROCK, CachedBeside, "usage.cache_read_input_tokens"),
    (OPENAI | ANTHROPIC | BEDROCK, Written, "usage.cache_creation_input_tokens"),
    (ANTHROPIC | BEDROCK, WrittenHour, "usage.cache_creation.ephemeral_1h_input_tokens"),
    // The numbers above leave out the steps that compact the prompt or ask an advisor.
    (ANTHROPIC, StepInput, "usage.iterations[*].input_tokens"),
    (ANTHROPIC, StepCached, "usage.iterations[*].cache_read_input_tokens"),
    (ANTHROPIC, StepWritten, "usage.iterations[*].cache_creation_input_tokens"),
    (ANTHROPIC, StepOutput, "usage.iterations[*].output_tokens"),
    (ANTHROPIC, Input, "message.usage.input_tokens"),
    (ANTHROPIC, CachedBeside, "message.usage.cache_read_input_tokens"),
    (ANTHROPIC, Written, "message.usage.cache_creation_input_tokens"),
    (ANTHROPIC, WrittenHour, "message.usage.cache_creation.ephemeral_1h_input_tokens"),
    (ANTHROPIC, Begun, "message.usage.output_tokens"),
    (GEMINI, Input, "usageMetadata.promptTokenCount"),
    (GEMINI, CachedWithin, "usageMetadata.cachedContentTokenCount"),
    (GEMINI, Tools, "usageMetadata.toolUsePromptTokenCount"),
    (GEMINI, Output, "usageMetadata.candidatesTokenCount"),
    (GEMINI, ReasonedBeside, "usageMetadata.thoughtsTokenCount"),
    (BEDROCK, Input, "usage.inputTokens"),
    (BEDROCK, CachedBeside, "usage.cacheReadInputTokens"),
    (BEDROCK, Written, "usage.cacheWriteInputTokens"),
    (BEDROCK, CachedBeside, "usage.cacheReadInputTokenCount"),
    (BEDROCK, Written, "usage.cacheWriteInputTokenCount"),
    (BEDROCK, FirstStays, "usage.cacheDetails[0].ttl"),
    (BEDROCK, FirstWritten, "usage.cacheDetails[0].inputTokens"),
    (BEDROCK, Output, "usage.outputTokens"),
    (OLLAMA, Input, "prompt_eval_count"),
    (OLLAMA, Output, "eval_count"),
    (OPENAI | ANTHROPIC | OLLAMA, Model, "model"),
    (OPENAI, Model, "response.model"),
    (ANTHROPIC, Model, "message.model"),
    (GEMINI, Model, "modelVersion"),
];

/// The paths that say whether a count of output is the last one, and has all of it.
#[rustfmt::skip]
const ENDS: [(Providers, Count, &str); 8] = [
    (OPENAI, Said, "choices[*]"),
    (OPENAI, Ended, "choices[*].finish_reason"),
    (ANTHROPIC, Said, "delta"),
    (ANTHROPIC, Ended, "delta.stop_reason"),
    (ANTHROPIC, Hidden, "content_block.thinking"),
    (GEMINI, Said, "candidates"),
    (GEMINI, Ended, "candidates[*].finishReason"),
    (GEMINI, Ended, "promptFeedback.blockReason"),
];

/// Ends of the keys of usage: each event or line that states usage has one of these keys. Other events and lines are not read. Each end
/// costs a search, so few of them are for many keys.
const KEY_ENDS: [(Providers, &str); 3] =
    [(OPENAI | ANTHROPIC | BEDROCK, "okens"), (ANTHROPIC, "thinking"), (GEMINI | OLLAMA | BEDROCK, "ount")];

/// The fields of an API's requests that limit the output. Gemini also takes names with underscores.
#[derive(Debug)]
struct Api {
    providers: Providers,
    /// The endings of its paths.
    paths: &'static [&'static str],
    /// The fields with the maximum number of tokens of output: the provider obeys these, and no other.
    max_tokens: &'static [&'static str],
    /// The fields with the number of answers.
    choices: &'static [&'static str],
}

/// The second of several prompts makes the output unknown: it is a string, or the number of a token.
const SECOND_PROMPT: &str = "prompt[1]";

#[rustfmt::skip]
static APIS: [Api; 7] = [
    Api {
        providers: OPENAI,
        paths: &["/completions"],
        max_tokens: &["max_tokens", "max_completion_tokens"],
        choices: &["n", "best_of", SECOND_PROMPT],
    },
    Api { providers: OPENAI, paths: &["/responses"], max_tokens: &["max_output_tokens"], choices: &[] },
    Api { providers: ANTHROPIC, paths: &["/messages", ":rawPredict", ":streamRawPredict"], max_tokens: &["max_tokens"], choices: &[] },
    Api {
        providers: GEMINI,
        paths: &[":generateContent", ":streamGenerateContent"],
        max_tokens: &["generationConfig.maxOutputTokens", "generation_config.max_output_tokens"],
        choices: &["generationConfig.candidateCount", "generation_config.candidate_count"],
    },
    Api { providers: BEDROCK, paths: &["/converse", "/converse-stream"], max_tokens: &["inferenceConfig.maxTokens"], choices: &[] },
    // Each model has fields of its own.
    Api { providers: BEDROCK, paths: &["/invoke", "/invoke-with-response-stream"], max_tokens: &[], choices: &[] },
    Api { providers: OLLAMA, paths: &["/api/chat", "/api/generate"], max_tokens: &["options.num_predict"], choices: &[] },
];

/// In place of the row of a model: the request is for none, and uses no tokens.
pub const NO_MODEL: u16 = u16::MAX;

/// The endings of paths that use no tokens. A slash may follow.
const FREE: [&[u8]; 9] = [
    b"/count_tokens",
    b":countTokens",
    b"/count-tokens",
    b"/count-tokens:rawPredict",
    b":computeTokens",
    b"/input_tokens",
    b"/moderations",
    b"/cancel",
    b":cancel",
];

/// The words behind the version in paths that use no tokens, whatever follows. The tokens of a batch, of a fine-tuning job, of a cached
/// content and of a conversation (Mistral's answer at once) are used, and so these are not here.
const FREE_OBJECTS: [&[u8]; 4] = [b"files", b"uploads", b"vector_stores", b"containers"];

/// The field in which a request names its model.
const REQUESTED_MODEL: &str = "model";

/// The weight of a token of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Input that no cache had.
    pub input: Weight,
    /// Input from a cache.
    pub cached_input: Weight,
    /// Input that was written to a cache.
    pub cache_write: Weight,
    /// Input that was written to a cache for an hour.
    pub cache_write_1h: Weight,
    /// Output that was said.
    pub output: Weight,
    /// Output that was thought.
    pub reasoning: Weight,
}

impl Weights {
    /// The kinds by their names in the configuration.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, Weight); 6] {
        [
            ("input", self.input),
            ("cached_input", self.cached_input),
            ("cache_write", self.cache_write),
            ("cache_write_1h", self.cache_write_1h),
            ("output", self.output),
            ("reasoning", self.reasoning),
        ]
    }

    /// The larger weight of each kind.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        Self {
            input: self.input.max(other.input),
            cached_input: self.cached_input.max(other.cached_input),
            cache_write: self.cache_write.max(other.cache_write),
            cache_write_1h: self.cache_write_1h.max(other.cache_write_1h),
            output: self.output.max(other.output),
            reasoning: self.reasoning.max(other.reasoning),
        }
    }

    /// Returns what was used by the counts of a response, in units of `per` weights; `None` if there is none. `delivered` is the output
    /// of a response that has not stated it.
    fn units(&self, scanner: &Scanner, delivered: u64, per: u64) -> Option<u64> {
        let stated: [Option<u64>; MAX_VALUES] = core::array::from_fn(|count| match scanner.last(count) {
            Some(Value::Number(number)) => number.counted().map(Millionths::get),
            _ => None,
        });
        let has = |count: Count| stated.get(count as usize).is_some_and(Option::is_some);
        // In the order of `Count`.
        #[rustfmt::skip]
        let [
            input, within, beside, written, written_within, hour, tools,
            output, begun, thought_within, thought_beside, total, _, _, _, _, _, first_written, _, _,
            steps_input, steps_beside, steps_written, steps_output,
        ] = stated.map(Option::unwrap_or_default);
        if ![Input, CachedBeside, Written, Tools, Output, Begun, ReasonedBeside].into_iter().any(has) {
            // Some state only a total: Voyage's embeddings.
            let terms = [(Millionths::new(total), self.input.max(self.output))];
            return has(Total).then(|| weigh(&terms, per));
        }
        let output = if has(Output) { output } else { begun.max(Millionths::of_units(delivered).get()) };
        // The steps are the same tokens in more detail, and some more.
        let (input, output) = (input.max(steps_input), output.max(steps_output));
        let (mut beside, mut written) = (beside.max(steps_beside), written.max(steps_written));
        let (mut cached, mut stored) = (within, written_within);
        // Some gateways state the same tokens within the input and beside it.
        if has(CachedWithin) && beside + written <= input {
            (cached, stored) = (cached.max(beside), stored.max(written));
            (beside, written) = (0, 0);
        }
        let cached = cached.min(input);
        let stored = stored.min(input - cached);
        let output = output.max(total.saturating_sub(input + beside + written + tools));
        let thought = thought_within.min(output);
        let is_hour = scanner.last(FirstStays as usize) == Some(Value::Text("1h"));
        let hour = hour.max(if is_hour { first_written } else { 0 }).min(stored + written);
        let terms = [
            (input - cached - stored, self.input),
            (tools, self.input),
            (cached + beside, self.cached_input),
            (stored + written - hour, self.cache_write),
            (hour, self.cache_write_1h),
            (output - thought, self.output),
            (thought + thought_beside, self.reasoning),
        ];
        Some(weigh(&terms.map(|(tokens, weight)| (Millionths::new(tokens), weight)), per))
    }

    /// The most that so many tokens of output weigh.
    fn output(&self, tokens: u64, per: u64) -> u64 {
        weigh(&[(Millionths::of_units(tokens), self.output.max(self.reasoning))], per)
    }

    /// True if a count may change what was used.
    fn reads(&self, count: Count) -> bool {
        match count {
            WrittenWithin => self.input != self.cache_write,
            WrittenHour | FirstStays | FirstWritten => self.cache_write != self.cache_write_1h,
            ReasonedWithin => self.output != self.reasoning,
            Model | Said | Ended | Hidden => false,
            _ => true,
        }
    }
}

/// The prices of tokens, by model.
#[derive(Debug)]
pub struct Prices {
    /// The models, and the row of each: the beginning of names, if it ends with `*`, or a name.
    models: Vec<(String, u16)>,
    rows: Vec<Weights>,
    /// The weights of models that are not in the table: the highest weight of each kind.
    highest: Weights,
    /// The number of tokens that cost a weight.
    per: u64,
    /// True if no request of another model is admitted.
    denies_unknown: bool,
}

impl Prices {
    /// The same weights for all models.
    #[must_use]
    pub fn of_all(weights: Weights) -> Self {
        Self { models: Vec::new(), rows: Vec::new(), highest: weights, per: 1, denies_unknown: false }
    }

    /// The weights of each model, which are the cost of `per` tokens. `denies_unknown`: no request of another model is admitted. `None` if
    /// there is no row.
    #[must_use]
    pub fn by_model(rows: Vec<(Vec<String>, Weights)>, per: u64, denies_unknown: bool) -> Option<Self> {
        let highest =
            rows.iter().map(|(_, weights)| *weights).reduce(|highest, weights| highest.max(&weights))?;
        let mut table = Self { models: Vec::new(), rows: Vec::new(), highest, per, denies_unknown };
        for (models, weights) in rows {
            let row = u16::try_from(table.rows.len()).ok()?;
            table.models.extend(models.into_iter().map(|model| (model, row)));
            table.rows.push(weights);
        }
        Some(table)
    }

    /// True if prices differ by model.
    #[must_use]
    pub const fn is_by_model(&self) -> bool {
        !self.rows.is_empty()
    }

    /// True if a request is denied because its model is unknown.
    #[must_use]
    pub const fn denies_unknown(&self) -> bool {
        self.denies_unknown
    }

    /// The number of tokens that cost a weight.
    #[must_use]
    pub const fn per(&self) -> u64 {
        self.per
    }

    /// The row of a model: of its name, or of the longest beginning of it.
    #[must_use]
    pub fn row(&self, model: &[u8]) -> Option<u16> {
        let length = |name: &str| match name.strip_suffix('*') {
            Some(begin) => model.starts_with(begin.as_bytes()).then_some(begin.len()),
            None => (name.as_bytes() == model).then_some(usize::MAX),
        };
        let found = self.models.iter().filter_map(|(name, row)| Some((length(name)?, *row)));
        found.max_by_key(|(length, _)| *length).map(|(_, row)| row)
    }

    /// The weights of a row; without one the highest.
    #[must_use]
    pub fn weights(&self, row: Option<u16>) -> &Weights {
        row.and_then(|row| self.rows.get(usize::from(row))).unwrap_or(&self.highest)
    }

    fn reads(&self, count: Count) -> bool {
        match count {
            Model => self.is_by_model(),
            _ => self.rows.iter().chain([&self.highest]).any(|weights| weights.reads(count)),
        }
    }
}

/// Reads the tokens that a response has used.
#[derive(Debug)]
pub struct Usage {
    /// The providers of the responses.
    pub providers: Providers,
    /// The paths of the counts.
    pub paths: Rc<Paths>,
    /// The prices of tokens.
    pub prices: Rc<Prices>,
}

impl Usage {
    /// The usage in responses of these providers.
    #[must_use]
    pub fn new(providers: Providers, prices: Rc<Prices>) -> Option<Self> {
        let ends = ENDS.iter().filter(|(of, ..)| of & providers != 0).map(|(_, count, path)| (*count, *path));
        let paths = paths(providers, &prices).chain(ends);
        let paths: Vec<_> = paths.map(|(count, path)| (count as u8, path)).collect();
        let ends = KEY_ENDS.iter().filter(|(of, _)| of & providers != 0);
        let ends: Vec<_> = ends.map(|(_, end)| *end).collect();
        let paths = Rc::new(Paths::grouped(&paths, &ends).ok()?);
        Some(Self { providers, paths, prices })
    }

    /// Returns the usage that a response of this many `bytes` states, of the model that it names; `requested` is the row of the model that
    /// the request names.
    ///
    /// If a response was cut off, its usage is the smaller of `reserved` and what it has delivered: each byte counts as a token of output,
    /// because no token is shorter. Thoughts may be counted and not delivered, and with several answers (`is_many`) each may state its own
    /// usage: then what was delivered says nothing. The usage is at least what the response has stated, where each event of a stream that
    /// has not stated its output counts as a token of it.
    #[must_use]
    pub fn used(
        &self,
        scanner: &Scanner,
        (requested, is_many): (Option<u16>, bool),
        (reserved, is_whole): (u64, bool),
        bytes: u64,
    ) -> Option<u64> {
        let weights = self.weights(scanner, requested);
        let said = weights.units(scanner, 0, self.prices.per)?;
        if Self::has_ended(scanner, is_whole, is_many) {
            return Some(said);
        }
        let is_hidden = is_many || scanner.last(Hidden as usize).is_some();
        let delivered = match scanner.last(Input as usize) {
            Some(Value::Number(_)) if !is_hidden => {
                said.saturating_add(weights.output(bytes, self.prices.per))
            }
            _ => reserved,
        };
        let least = weights.units(scanner, scanner.documents(), self.prices.per)?;
        Some(least.max(reserved.min(delivered)))
    }

    /// Returns the least that a stream without usage has used: each event counts as a token of output.
    #[must_use]
    pub fn least(&self, scanner: &Scanner, requested: Option<u16>) -> u64 {
        self.weights(scanner, requested).output(scanner.documents(), self.prices.per)
    }

    #[inline(never)]
    fn weights(&self, scanner: &Scanner, requested: Option<u16>) -> &Weights {
        let row = match scanner.last(Model as usize) {
            // Some streams have an empty name in events before the first that has one.
            Some(Value::Text("")) | None => requested,
            Some(Value::Text(model)) => self.prices.row(model.as_bytes()),
            Some(_) => None,
        };
        self.prices.weights(row)
    }

    /// True if the last count of output in a response that has ended counts all of it.
    fn has_ended(scanner: &Scanner, is_whole: bool, is_many: bool) -> bool {
        let has = |count: Count| scanner.is_beside_last(count as usize);
        let is_stated = matches!(scanner.last(Output as usize), Some(Value::Number(_)));
        // Some gateways state it beside an empty part of an answer, and nothing follows `[DONE]`.
        let ends = has(Ended) || is_stated && scanner.is_done();
        scanner.is_final(is_whole) || has(Output) && !has(Said) || ends && !is_many
    }
}

/// The paths of these providers that are read with these prices.
pub fn paths(providers: Providers, prices: &Prices) -> impl Iterator<Item = (Count, &'static str)> {
    let read = PATHS.iter().filter(move |(of, count, _)| of & providers != 0 && prices.reads(*count));
    read.map(|(_, count, path)| (*count, *path))
}

/// The path of a request that can be read in one way.
fn path<'r>(request: &'r Request<'_>) -> Option<&'r [u8]> {
    let path = request.path().filter(|path| path.literal().is_none())?;
    path.resolved().split(|&byte| byte == b'?').next()
}

/// True if a request uses no tokens: it counts them, moderates content, cancels a response, or is for files and what holds them.
#[must_use]
pub fn is_free(request: &Request<'_>) -> bool {
    let Some(path) = path(request) else { return false };
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let mut before: &[u8] = b"";
    FREE.iter().any(|end| path.ends_with(end))
        || path.split(|&byte| byte == b'/').any(|segment| {
            let is_version = matches!(before, b"v1" | b"v1beta" | b"openai");
            before = segment;
            is_version && FREE_OBJECTS.contains(&segment)
        })
}

/// The reservation of a request: its input by its size, and its output by the maximum that it states.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// The providers that may be asked.
    pub providers: Providers,
    /// The prices of tokens.
    pub prices: Rc<Prices>,
    /// The number of bytes of the body for one token of input.
    pub bytes_per_token: u64,
    /// The most tokens of input that are reserved, and how many of a body that cannot be read.
    pub max_input: u64,
    /// The tokens of output of a request that states none.
    pub output: u64,
    /// The upper bound of reserved output tokens. A body that cannot be read reserves exactly this.
    pub max_output: u64,
}

impl PartialEq for Estimate {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |of: &Self| (of.providers, of.bytes_per_token, of.max_input, of.output, of.max_output);
        numbers(self) == numbers(other) && Rc::ptr_eq(&self.prices, &other.prices)
    }
}

impl Eq for Estimate {}

impl Estimate {
    /// Shows the paths of the values of a body that it needs.
    pub(super) fn body_paths<'a>(&self, show: &mut dyn FnMut(&'a str)) {
        for api in self.apis() {
            [api.max_tokens, api.choices].into_iter().flatten().for_each(|path| show(path));
        }
        if self.prices.is_by_model() {
            show(REQUESTED_MODEL);
        }
    }

    /// The APIs that a request may be for.
    fn apis(&self) -> impl Iterator<Item = &'static Api> {
        let providers = self.providers;
        APIS.iter().filter(move |api| api.providers & providers != 0)
    }

    /// The largest of the counts in these fields of all APIs, if any is there; `None` if one cannot be read.
    #[inline(never)]
    fn largest(
        &self,
        request: &Request<'_>,
        fields: fn(&Api) -> &'static [&'static str],
    ) -> Option<Option<u64>> {
        let mut largest = None;
        for api in self.apis() {
            for field in fields(api) {
                largest = largest.max(request.body_count(field).ok()?);
            }
        }
        Some(largest)
    }

    /// The most tokens of output that a request takes: what it says where its provider reads it. A number elsewhere makes that no less.
    fn max_tokens_of(&self, request: &Request<'_>) -> Option<u64> {
        let largest = self.largest(request, |api| api.max_tokens)?;
        let path = path(request).unwrap_or_default();
        let is_of_path = |api: &&Api| api.paths.iter().any(|end| path.ends_with(end.as_bytes()));
        let says = |api: &Api| {
            api.max_tokens.iter().any(|field| request.body_count(field).is_ok_and(|count| count.is_some()))
        };
        let is_said = match self.apis().find(is_of_path) {
            Some(api) => says(api),
            None => self.apis().all(says),
        };
        Some(largest.unwrap_or(0).max(if is_said { 0 } else { self.output }))
    }

    /// The tokens of input and output of a request.
    #[must_use]
    pub fn tokens<'a>(&'a self, request: &Request<'a>) -> (u64, u64) {
        if is_free(request) {
            return (0, 0);
        }
        let bytes = request.body_length().ok().or_else(|| content_length(request));
        let input = bytes
            .map_or(self.max_input, |bytes| bytes.div_ceil(self.bytes_per_token.max(1)).min(self.max_input));
        let choices = self.largest(request, |api| api.choices).map(|choices| choices.unwrap_or(1));
        let output = self.max_tokens_of(request).and_then(|tokens| Some(tokens.saturating_mul(choices?)));
        (input, output.unwrap_or(self.max_output).min(self.max_output))
    }

    /// True if a request asks OpenAI's API for several answers.
    pub(super) fn asks_many(&self, request: &Request<'_>) -> bool {
        // One that uses no tokens need not wait for its body.
        if is_free(request) {
            return false;
        }
        let mut fields = self.apis().filter(|api| api.providers & OPENAI != 0).flat_map(|api| api.choices);
        fields.any(|field| match request.body_count(field) {
            Ok(Some(count)) => *field == SECOND_PROMPT || count > 1,
            Ok(None) => false,
            // The second prompt may be a string. If weir does not read the body, the number of answers is unknown.
            Err(_) => request.body_length().is_ok(),
        })
    }

    /// The units that a request reserves.
    pub(super) fn of<'a>(&'a self, request: &Request<'a>) -> u64 {
        if is_free(request) {
            return 0;
        }
        let (input, output) = self.tokens(request);
        self.units(input, output, requested_row(&self.prices, request, true))
    }

    /// True if a request is denied because no price is known for its model.
    pub(super) fn denies_model(&self, request: &Request<'_>) -> bool {
        self.prices.denies_unknown
            && !is_free(request)
            && requested_row(&self.prices, request, true).is_none()
    }

    /// The units that are reserved by a request whose body cannot be read, and that is not denied for its model.
    #[must_use]
    pub fn of_unreadable(&self) -> u64 {
        self.units(self.max_input, self.max_output, None)
    }

    fn units(&self, input: u64, output: u64, row: Option<u16>) -> u64 {
        let weights = self.prices.weights(row);
        // Input may be in a cache, or be written there, and output may be thought.
        let written = weights.cache_write.max(weights.cache_write_1h);
        let terms = [
            (input, weights.input.max(weights.cached_input).max(written)),
            (output, weights.output.max(weights.reasoning)),
        ];
        weigh(&terms.map(|(tokens, weight)| (Millionths::of_units(tokens), weight)), self.prices.per)
    }
}

/// The model that a request names: in its path, as Gemini, Bedrock and Azure have it, or in its body, if that is read.
///
/// # Errors
/// [`Unreadable`], also of a path that cannot be resolved for certain: it may name a model.
pub fn requested_model<'r>(
    request: &'r Request<'_>,
    reads_body: bool,
) -> Result<Option<Cow<'r, [u8]>>, Unreadable> {
    let path = request.path().ok_or(Unreadable)?;
    match model_in_path(path.resolved()) {
        Some(model) => Ok(Some(Cow::Borrowed(model))),
        None if reads_body => request.body_text(REQUESTED_MODEL),
        None => Ok(None),
    }
}

/// The row of the model that a request names.
#[must_use]
pub fn requested_row(prices: &Prices, request: &Request<'_>, reads_body: bool) -> Option<u16> {
    if !prices.is_by_model() {
        return None;
    }
    prices.row(&requested_model(request, reads_body).ok()??)
}

/// The model in `/v1beta/models/MODEL:generateContent`, `/model/MODEL/converse`, `/openai/deployments/MODEL/chat/completions` or
/// `/engines/MODEL/chat/completions`.
fn model_in_path(path: &[u8]) -> Option<&[u8]> {
    let path = path.split(|&byte| byte == b'?').next()?;
    let mut segments = path.split(|&byte| byte == b'/');
    while let Some(segment) = segments.next() {
        match segment {
            // Azure's `/models/chat/completions` names none.
            b"models" => {
                let mut parts = segments.next()?.split(|&byte| byte == b':');
                let model = parts.next();
                if parts.next().is_some() {
                    return model;
                }
            }
            b"model" | b"deployments" | b"engines" => return segments.next(),
            _ => {}
        }
    }
    None
}

/// The maximum length of a body that is too large to be read, or is no JSON. `None`: it is compressed, or of any length.
fn content_length(request: &Request<'_>) -> Option<u64> {
    let header = |name| request.header(name).ok();
    let is_exchange = header("content-encoding")?.is_none() && header("upgrade")?.is_none();
    let length = header("content-length")?.filter(|_| is_exchange)?;
    super::cost::number(&length.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_a_key_that_is_searched_for() {
        for (of, count, path) in PATHS.iter().filter(|(_, count, _)| !matches!(count, Model | FirstStays)) {
            for provider in (0..8).map(|bit| 1 << bit).filter(|provider| of & provider != 0) {
                let is_searched = KEY_ENDS.iter().any(|(of, end)| of & provider != 0 && path.ends_with(end));
                assert!(is_searched, "{path} of {provider}: {count:?}");
            }
        }
    }
}
