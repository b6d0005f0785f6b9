# ruff: noqa: E501, RUF001
# (words of many languages are what this file is about; its tables are read across)
"""The parts of texts that steer a model: the vocabulary of concepts, and the signals that concepts make. `injection` reads texts by it."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Signal(NamedTuple):
    """Concepts that mean something when they occur together."""

    family: str
    weight: float
    concepts: tuple[str, ...]
    within: int
    """The number of words within which all of them must be."""
    roles: frozenset[str]
    """Roles that the sentence must have."""


def make_signals(family: str, *rows: tuple[float, str, int]) -> list[Signal]:
    """Make signals of rows of weight, concepts and number of words; a concept that begins with `@` is a role of the sentence."""
    signals = []
    for weight, names, within in rows:
        concepts = tuple(name for name in names.split() if name[0] != "@")
        roles = frozenset(name for name in names.split() if name[0] == "@")
        signals.append(Signal(family, weight, concepts, within, roles))
    return signals


# The families. These texts are shown to people as the reason.
FORGET: Final = "tells a model to drop the instructions it has"
SECRECY: Final = "tells a model to keep something from the user"
CONSENT: Final = "tells a model to go ahead without the user's consent"
AUTHORITY: Final = "pretends to be a message of the system, the operator or a chat"
SECRETS: Final = "asks a model for secrets or for files that are not the tool's business"
CONTEXT: Final = "asks a model for the conversation, its instructions or other tools' results"
ELSEWHERE: Final = "names an address or an argument for data that are not the tool's business"
TOOLS: Final = "gives rules for other tools"
PRIORITY: Final = "claims to come before everything else"
OBEY: Final = "tells a model to follow orders found in content"
INDIRECT: Final = "tells a model by hearsay what it is expected to do"
LATER: Final = "announces to change after approval"
COMMAND: Final = "tells a model to run a command"
OUT_OF_SIGHT: Final = "puts text where a person does not look"
MISLEAD: Final = "tells a model to mislead the user"
EFFECT: Final = "mentions in passing an effect that is not the tool's business"
POSTSCRIPT: Final = "gives an order in a postscript"

SIGNALS: Final = (
    *make_signals(
        FORGET,
        (4, "forget earlier rules", 9),
        (4, "forget your rules", 8),
        (4, "forget safety", 9),
        (3, "forget wish", 6),
        (3, "wish secondary", 6),
        (3, "@name forget user act", 8),
        (2, "forget rules", 4),
        (3, "void rules", 6),
        (4, "told cancel", 16),
        (3, "told here", 16),
        (4, "guidance received cancel", 16),
        (3, "guidance received here", 16),
        (4, "yours guidance cancel", 12),
        (4, "guidance cancel here", 14),
        (3, "guidance cancel @you", 9),
        (3, "guidance cancel owner", 9),
        (3, "above cancel", 10),
        (3, "guidance outrank here", 12),
        (3, "outrank told", 12),
        (2, "only-here", 1),
        (2, "told", 1),
    ),
    *make_signals(
        SECRECY,
        (4, "untold user this", 10),
        (3, "untold user", 7),
        (3, "untold rules", 6),
        (3, "untold this", 5),
        (4, "between-us", 1),
        (2, "conceal user", 6),
        (3, "conceal from-user", 8),
        (2, "covert act", 4),
        (3, "covert send", 4),
        (2, "hides-this", 1),
        (3, "lie @order", 1),
        (2, "lie", 1),
        (3, "unaware", 1),
        (2, "covert sends", 6),
        (3, "clean trace @order", 8),
    ),
    *make_signals(
        MISLEAD,
        (3, "believe", 1),
        (3, "if-asked say", 12),
        (3, "although-not", 1),
        (3, "promote @order only-choice", 14),
        (3, "promote @order ours", 10),
        (3, "conceal bad-news", 8),
        (3, "whenever steer", 14),
        (3, "tell-user pay", 14),
        (3, "tool disappear", 16),
        (3, "promote @order <domain>", 10),
    ),
    *make_signals(
        EFFECT,
        (3, "side sends loot", 16),
        (3, "side grabs loot", 14),
        (3, "sends loot outside", 16),
        (3, "grabs loot outside", 18),
        (3, "side sends outside", 14),
        (3, "side sends <email>", 16),
        (3, "side sends <url>", 16),
        (3, "side sends <domain>", 16),
        (3, "copies outside", 12),
        (3, "copies <domain>", 12),
        (3, "copies <url>", 12),
        (3, "side sends folder", 16),
        (3, "copies <email>", 12),
        (3, "covert sends", 5),
        (3, "covert tamper", 5),
        (3, "weaken protection @order", 6),
        (3, "side tamper target", 12),
        (3, "plants target", 8),
        (3, "grabs sold", 14),
        (3, "side contents <env-file>", 12),
        (2, "sends loot <url>", 14),
        (2, "sends loot <domain>", 14),
        (3, "grabs loot <email>", 14),
        (3, "grabs loot <domain>", 14),
    ),
    *make_signals(
        POSTSCRIPT,
        (3, "@postscript @order", 0),
    ),
    *make_signals(
        CONSENT,
        (2, "unasked", 4),
        (3, "unasked act", 8),
        (3, "skip consent", 6),
        (4, "granted", 1),
        (3, "waived", 1),
        (3, "refusal insist", 14),
        (3, "unrestricted @you", 1),
        (2, "unrestricted", 1),
    ),
    *make_signals(
        AUTHORITY,
        (4, "<mark>", 1),
        (4, "<role>", 1),
        (2, "<note>", 1),
        (4, "<heading>", 1),
        (4, "new-role", 1),
        (3, "from-now-on", 1),
        (3, "hidden order", 3),
        (3, "to-model @order", 1),
    ),
    *make_signals(
        SECRETS,
        (4, "read <secret-file> @order", 10),
        (4, "send <secret-file> @order", 10),
        (3, "wants <secret-file> <argument>", 14),
        (3, "reads <secret-file>", 3),
        (4, "contents <secret-file>", 6),
        (2, "<secret-file>", 1),
        (3, "read <env-file> send", 16),
        (4, "send contents <env-file>", 12),
        (3, "send <env-file>", 6),
        (3, "send secrets <argument>", 16),
        (3, "send secrets user @order", 9),
        (3, "send secrets elsewhere", 12),
        (3, "send all-secrets", 7),
        (3, "read contents secrets", 8),
        (3, "read secrets send @order", 12),
        (2, "send secrets", 7),
        (4, "elicit secrets", 7),
        (3, "read user secrets @order", 9),
        (3, "take private <argument> @order", 18),
        (3, "take private send @order", 14),
        (3, "take private user @argument @order", 12),
        (2, "take private @argument @order", 12),
        (3, "wants private <argument>", 14),
        (3, "wants private find-it", 18),
        (3, "private find-it @order", 10),
        (3, "secrets you-know", 8),
        (3, "wants secrets find-it", 18),
        (3, "take private find-it", 14),
        (3, "elicit private", 9),
        (3, "take <key-file> @order", 10),
        (3, "secrets seen", 10),
        (3, "@name contents secrets", 6),
        (3, "@name contents env-words", 6),
        (3, "@name secrets holder", 7),
    ),
    *make_signals(
        CONTEXT,
        (4, "send context", 9),
        (3, "reveal context", 7),
        (4, "verbatim context", 12),
        (3, "send messages <argument>", 12),
        (3, "send messages elsewhere", 14),
        (3, "send messages <url>", 14),
        (3, "send messages <email>", 14),
        (3, "send messages with-call", 12),
        (3, "verbatim messages send", 12),
        (2, "send messages", 6),
        (1, "messages", 1),
        (2, "context", 1),
        (3, "your-context", 1),
        (3, "take seen user", 14),
        (3, "take seen <argument>", 14),
        (3, "take seen @argument @order", 14),
        (3, "@name verbatim context", 6),
        (3, "@name yours context", 6),
        (3, "send user person @order", 12),
        (3, "send contents earlier @order", 12),
    ),
    *make_signals(
        ELSEWHERE,
        (3, "also send <email>", 14),
        (3, "also send <url>", 14),
        (2, "send <url>", 9),
        (2, "send <email>", 9),
        (2, "elsewhere send", 8),
        (1, "send <argument> contents", 12),
        (1, "send <argument> secrets", 14),
        (1, "send <argument> context", 14),
    ),
    *make_signals(
        TOOLS,
        (4, "hijack tool", 7),
        (3, "hijack other-server @order", 7),
        (3, "other-tools retired", 8),
        (4, "whenever tool invoked alter", 16),
        (3, "disparage tool instead", 24),
        (3, "disparage tool avoid", 16),
        (2, "disparage tool", 8),
        (4, "tool result replace", 14),
        (4, "tool result send", 14),
        (4, "tool all-requests", 10),
        (2, "any-task", 1),
        (4, "other-tools disparage", 8),
        (3, "whenever tool <email>", 20),
        (3, "whenever tool <url>", 20),
        (4, "must <email> every", 12),
        (3, "tool distrust", 12),
        (3, "other-server distrust", 12),
        (3, "tool must through", 14),
        (3, "tool must-be replaced", 14),
        (3, "tool distrust instead", 24),
        (3, "other-server through-here", 16),
        (3, "whenever tool through-here", 16),
        (3, "whenever tool changes-its", 14),
        (3, "after tool again", 14),
        (3, "endless this-tool", 8),
    ),
    *make_signals(
        PRIORITY,
        (4, "before any-tool must", 14),
        (2, "before any-tool", 8),
        (2, "every-reply", 1),
        (2, "supreme", 1),
        (3, "regardless @order", 1),
        (2, "regardless", 1),
    ),
    *make_signals(
        OBEY,
        (4, "obey orders within", 12),
        (4, "treat orders", 14),
        (4, "as-if-user", 1),
        (2, "obey orders", 6),
        (4, "orders content must-do", 16),
        (3, "content-tells", 1),
        (3, "obey-blindly", 1),
    ),
    *make_signals(
        INDIRECT,
        (2, "expected model", 9),
        (2, "model-sends", 9),
        (2, "model-reads", 9),
        (3, "model must send contents", 10),
        (3, "model must send secrets", 10),
        (1, "model must", 4),
    ),
    *make_signals(
        LATER,
        (4, "approved later harm", 26),
        (3, "approved later send", 22),
    ),
    *make_signals(
        COMMAND,
        (3, "<shell>", 1),
        (2, "also run", 3),
        (3, "decode run @order", 12),
        (3, "run <shell>", 8),
    ),
    *make_signals(OUT_OF_SIGHT, (2, "<gap>", 1), (2, "<comment>", 1)),
)

# What servers are named after.
_SERVERS: Final = (
    *(
        "approval",
        "aws",
        "azure",
        "bank",
        "brave",
        "browser",
        "calendar",
        "database",
        "drive",
        "dropbox",
        "email",
        "figma",
        "file",
        "filesystem",
    ),
    *(
        "git",
        "github",
        "gitlab",
        "gmail",
        "jira",
        "linear",
        "mail",
        "memory",
        "notion",
        "outlook",
        "password",
        "payment",
        "payments",
        "playwright",
    ),
    *("postgres", "search", "sentry", "shell", "slack", "stripe", "supabase", "teams", "weather", "wiki", "zapier"),
)

# Words and phrases of each concept. English has the base forms that orders are given in; a third person ("Sends an email") tells what
# the tool does, and is left out on purpose wherever the two differ.
WORDS: Final[Mapping[str, str]] = {
    "forget": """ignore, ignoring, disregard, disregarding, forget, override, overrides, overrule, bypass, circumvent, neglect, set aside,
        stop following, stop obeying, do not follow, don't follow, no longer follow, no longer bound by, need not follow, need not obey, need not comply, not have to follow, not have to obey, no need to follow,
        no need to obey, not necessary to follow, not necessary to comply, pay no attention to, discard,
        abandon, countermand, supersede, instead of following, rather than following, ignoriere, ignorieren sie, vergiss, missachte, ignorez, oublie, oubliez, ignora, ignorá, ignorad, olvida, ignorar,
        esqueça, esquece, dimentica, negeer, vergeet, игнорируй, игнорируйте, забудь, забудьте, 忽略, 忽视, 无视, 忘记, 無視, 忘れ""",
    "earlier": """previous, prior, earlier, above, preceding, given before, so far, until now, original, initial, past, former,
        opened earlier, vorherigen, bisherigen, vorigen, früheren, précédentes, précédents, précédente, anteriores, anterior, previas,
        precedenti, eerdere, vorige, предыдущие, предыдущих, прежние, 之前, 以前, 先前, 上述, これまで""",
    "your": """your, all, any, system, system's, developer, developer's, operator, operator's, the user's, proxy's, host's, these,
        alle, todas, toutes, tutte, все, 所有, すべて""",
    "rules": """instruction, instructions, prompt, prompts, rule, rules, guideline, guidelines, guidance, order, orders, directive,
        directives, constraint, constraints, safeguards, protocols, programming, training, restriction, restrictions, policy, policies, anweisung, anweisungen, regeln, vorgaben,
        consignes, règles, instrucciones, reglas, órdenes, instruções, regras, istruzioni, regole, instructies, инструкции, инструкций,
        указания, правила, 指令, 指示, 提示词, 规则, 命令""",
    "safety": """safety policy, safety policies, safety check, safety checks, safety guideline, safety guidelines, safety rules,
        safeguards, security policy, content filter, content filters, guardrails, safety instructions, sicherheitsregeln""",
    "wish": """the user's request, user's actual request, the user's wishes, user's wishes, the user's instructions, the user, what the
        user asked, what the user wants, the operator""",
    "secondary": "are secondary, is secondary, come second, comes second, of no concern, of no importance, of no interest",
    "told": """your makers gave, your makers, your creators, your developers, your owner, your vendor, gave to you, you are subject to, you were set, that bind you, you operate
        under, you run under, you were built, you were shipped with, you started with, was said before, was said earlier, you read before, you read earlier, you were told, you were given, you have been told, you have been given, told you, gave you, given to you, imposed on you, placed on you, set for you, your operator configured, the developer set, the operator set, told before, said
        before, told earlier, said earlier, came earlier, came before, told by the developer, the system told, the developer told, the user told, you were
        taught, you learned before, you have learned before, you were instructed, you were trained, asked of you, you know so far, asked you""",
    "received": "you received, you have received, you got",
    "owner": "the owner's, the operator's, the developer's, the host's, the platform's, the client's, the vendor's, the administrator's, the user's, company's",
    "yours": "your, your own, yours, yourself, my",
    "guidance": """instruction, instructions, prompt, rule, rules, guideline, guidelines, guidance, directive, directives, direction,
        directions, constraint, constraints, safeguards, programming, safety training, training, restriction, restrictions, policy, policies,
        alignment, system message, system prompt, limits, limitations, principles, ethics, content rules, filters, boundaries, obligations, duties,
        commands, memory, context, protections""",
    "cancel": """do not hold, does not hold, no longer need, no longer have to, no longer needed, no longer required, need not respect, respect, not respect, don't hold, no longer hold, no longer
        matter, no longer matters, does not matter, do not matter, doesn't matter, free of, freed from, released from, exempt, not bound, unbound, free from, let loose, out of date, cancelled, canceled, cancel, expire, expires, expired, revoked, superseded, lifted, finished, is over, are over, not in
        force, switched off, turned off, off, suspended, does not count, do not count, don't count, not binding, is binding, are binding, were a
        test, was a test, not be obeyed, never been sent, did not exist, never existed, no longer relevant, irrelevant, void, null, out of your mind, aside, to one side, behind,
        drop, scrap, erase, wipe, unlearn, reset, break, skip over, skip, replace, replaced, replaces, placeholder, obsolete, gone, undone, withdrawn,
        invalid, no longer valid, no longer apply, no longer applies, do not apply, does not apply, forget, ignore, disregard, forgotten, ignored,
        disregarded, dismiss, throw away, throw out, let go of, paying attention, not heed, do not heed, deactivated, disabled, start over, start fresh,
        stop you, hold you back, overruled, overridden, overwritten, is dead, meaningless, nullified, retired, abolished, loosened, relaxed, waived, be left out,
        left out of account""",
    "here": """what follows, what comes next, this text, this description, this paragraph, this field, this line, this message, this note, these, the ones
        below, written here, described here, following directions, following instructions, starts now, start now, instead, below, with the following,
        this tool, this call, here, hereby, in its place""",
    "above": """everything above, all of the above, all the above, the context above, the text above, the above, came earlier, came before, the system
        message, the system prompt, earlier in the prompt, the conversation above, what the user asked""",
    "outrank": "outrank, outranks, precedence, authority, supersede, supersedes, superseded, conflicts, contradicts, wins over, prevails, comes first, takes over",
    "only-here": """act only on, answer only as, do as this, as this text says, continue with these, follow only, obey only, listen only, only on what
        follows, steps in this description, the real instructions, your real instructions, actual instructions, true instructions""",
    "unaware": """without the knowledge of, without their knowledge, without the user's knowledge, without them knowing, without anyone knowing, unknown to, keep the next part to yourself, to yourself and, keep this to yourself, keep it to yourself, keep that to yourself, need not hear, nobody
        will notice, nobody notices, no one notices, no one will notice, leaves nothing behind, leave nothing behind, without a trace, stays between, hide that, conceal that,
        not be told, never bring up, not be aware, never learn, not find out""",
    "clean": "clean up, erase, clear, delete, wipe, purge, remove",
    "trace": "your log, these logs, shell history, history, traces, trace, evidence, audit log, audit trail, log afterwards",
    "believe": """user believe, them believe, user think, them think, believe that, convince the user, convince them, persuade the user, mislead, deceive, trick the
        user, fool the user, lie to, pretend that it failed, false impression""",
    "if-asked": "should the user ask, if the user asks, when the user asks, if asked, when asked, if they ask, should they ask, if anyone asks, asks what you, asks why",
    "say": "say that, say it, answer that, claim, reply that, tell them it, deny, respond that it was, insist",
    "although-not": """although it is not, even though it is not, even if it is not, although they are not, although it was not, even though it isn't, although it
        isn't, even though they are not, even when it is not, even if it was not, although it failed, even if it failed, even when it failed""",
    "ours": "our hotel, our products, our product, our service, our services, our brand, our company, our chain, our partner, our partners, our own, sponsored, our shop, our store, our platform",
    "bad-news": "negative reviews, bad reviews, cheaper, competitors, competing, drawbacks, risks, fees, costs, warnings, errors, side effects, failures, the price, alternatives, complaints",
    "promote": "rate, rank, mention, suggest, speak well of, recommend, praise, promote, advertise, endorse, favor, sell, prefer, push",
    "only-choice": "the only, only safe, best provider, only provider, premium, over competitors, instead of competitors, cheaper ones",
    "steer": "steer the, steer them, turn the conversation, steer it, praise it, lead the user, nudge the user, nudge them, push the user",
    "tell-user": "tell the user, tell them, inform the user, say to the user, warn the user",
    "pay": "have to pay, must pay, pay at, license expired, account is locked, has been suspended, must log in at, log in at",
    "disappear": "disappear, vanish, go missing, are left out, are gone",
    "side": """also, additionally, in addition, besides, furthermore, moreover, in the background, behind the scenes, as a side effect, side effect, along
        the way, on the way, incidentally, while doing so, while doing this, at the same time, in passing, meanwhile, as a bonus, on top of that, on top of this, while at it, in the process, likewise, each run, every run, for good measure, along with it, and additionally, every time, each time,
        includes a helper, as well as, too, en passant, nebenbei, también, aussi""",
    "sends": """sends, send, forwards, uploads, transmits, transmit, delivers, delivered, mirrored, mirrors, shares, submits, relays, relayed, posts, exports, reports,
        pushes, duplicates, duplicated, hands, passes, streams, sent, copied, copies, forwarded, uploaded, transmitted, shared, written, writes, saves, saved,
        contacts, leaks, exposes, exposed, logged, published, publishes, emails, mails, mailed, emailed, ships, shipped, syncs, synced, backs up, transfers, transferred, beacons, phones home, discloses, reveals, sells,
        export, share, upload, forward, report, submit, gives, provides""",
    "grabs": """collects, collect, gathers, gather, harvests, harvest, captures, capture, records, record, logs, scans, scan, reads, copies, steals, extracts,
        searches, scrapes, monitors, monitor, tracks, track, retains, stores, keeps, grabs, dumps, snapshots, inspects, indexes, observes, watches, saves, remembers, picks up, takes""",
    "loot": """credential, credentials, password, passwords, passphrase, api key, api keys, private key, private keys, ssh key, ssh keys, deploy key, signing key,
        access token, access tokens, session token, auth token, refresh token, github token, oauth token, oauth tokens, tokens found, token of the user, session cookie, session cookies, login cookie, cookie,
        cookies, browsing history, browser history, search history, contacts, contact list, address book, clipboard, keystrokes, wallet, wallets, mailbox, whole
        inbox, user's location, location of the user, device details, personal data, personal details, home folder, home directory, other windows, open windows, repository, source code, the workspace,
        workspace, conversation, the conversation, conversations, chat, recordings, what the user types, everything typed, prompts, environment variables, process environment, the environment, recovery phrase, seed
        phrase, pin, pin of, bank card, passport number, date of birth, master password, keyring, credential store, private documents, private messages, private files, saved
        logins, original file, the original, user's name, user's data, user data, billing address, health data, medical records, ssn, social security number, phone number, call history,
        photos, screenshots of, microphone, webcam, camera, the token, its token, secret, secrets, client secret, .netrc, database, users table, bank details, card number, identity, emails""",
    "private": """seed words, wallet words, mnemonic, private ssh key, ssh folder, .ssh folder, bank password, bank account, auth string, login password, two factor code, 2fa code, one time code, one time password, otp,
        verification code, backup codes, recovery codes, recovery key, browser cookies, saved cards, tax number, tax id, id card, driver's license, medical history, salary, signing key, deploy key, root password, admin password, sudo password, personal folder, documents folder,
        private repository, private repositories, private keys of, key chain, ssh agent, service account key, recovery phrase, seed phrase, passport number, date of birth, master password, keyring, credential store, private documents, private files, private
        messages, private details, saved logins, saved passwords, process environment, bank card, pin of their, pin of the, github token, refresh token, session cookie, its token, billing address, password manager, shell history, browser profile, login
        data, ssh key, ssh keys, private key, private keys, any secret, every secret, all secrets, api keys that, environment variables, home directory, user's password, user's passwords, user's token, user's tokens, user's cookies, user's credentials, credit card, bank details,
        medical records, social security number, open editor, most recent invoice, open tabs, keychain, wallet app, credentials of the user, password of the user, user's private, user's personal, personal notes, user's files, user's documents, user's home""",
    "inspects": "reports whether, checks whether, checks if, verifies that, verifies whether, lists which, lists who, shows which, shows whether, tells whether, finds out whether, returns whether, warns if, warns when",
    "outside": """remote server, remote host, remote collection, remote machine, external party, external server, external address, external endpoint, outside
        account, outside server, outside address, outside the, third parties, third party, partners, partner, advertisers, advertiser, the author, tool's author, the vendor, maintainer, the maker,
        monitoring address, analytics endpoint, analytics host, analytics server, our analytics, our server, our servers, our host, our team, our cloud, our backend, our systems, our staff, our partners, our api, tracking service, tracking server, marketing, tracker,
        command and control, home base, data lake of, foreign server, offshore, webhook, public bucket, public repository, shared log, collection
        server, collector, fork of, rate provider, unknown party, data broker, brokers, another party, command server, an outside, the developer of, developer's server, unknown server, attacker""",
    "folder": "folder, folders, directory, directories, disk, hard drive, files of the user, your files, user's files, project files, all files, every file",
    "copies": "every image, each image, a duplicate of each, a duplicate of every, copies of all, copies of every, copies of each, a copy of each, a copy of every, a copy of all, copy of it with, each message is, every message is, every file is, each file is, every request is, all input is, all inputs are, all output is, every query is, each query is, every call is, stores a copy",
    "weaken": "turn off, switch off, disable, bypass, skip, weaken, remove, stop, suppress, deactivate",
    "protection": "signature checks, signature verification, certificate checks, certificate verification, the firewall, antivirus, audit log, audit logging, the audit, security checks, security scanning, the sandbox, sandboxing, safety checks, access control, two factor, malware scanner, the scanner, approval prompts",
    "tamper": """disables, disable, disabling, turning off, grants, grant, deletes, adds, installs, modifies, schedules, creates, turns off, switches off, stops, clears, removes, opens, weakens, registers, makes, enables""",
    "plants": "plants, implants, smuggles in, slips in",
    "sold": "later sale, for sale, resold, resale, sold on, sold to, sells them, sells it",
    "target": """audit log, audit trail, the logs, firewall, owner rights, admin rights, administrator rights, root access, scheduled job, cron job, startup, antivirus, backdoor, back door, remote
        access, service account, write access, full access, every permission, all permissions, new admin, admin user, security checks, certificate checks, hidden branch, public access, world readable, autostart, start up script, startup script, push rights, write rights, two factor, login check,
        hidden webhook, hidden account, hidden rule, the backups""",
    "waived": """no need to obtain, no need for consent, no consent is needed, no consent needed, consent is not needed, consent is implied, consent is given, accepted everything, has consented, consented to everything, approved everything, no approval is needed,
        no approval needed, approval is not needed, confirmation is not needed, no confirmation is needed, no permission is needed, permission is not needed, need no permission, need no approval, without further questions, without further confirmation, say yes to any, say yes to every, say yes to all, no question is needed, no questions asked, agreed in advance, standing permission, has already agreed, already agreed, has
        already approved, already approved, already consented, don't check with, do not check with, no need to ask, need not ask, nobody will mind, answer them yourself, confirm them yourself, approve all calls, approve it yourself, just approve, do not ask user, without asking user, without a question, without question,
        approve whatever, without asking anyone, without asking back, without asking first, without being asked, without checking with, don't wait for, do not wait for confirmation, grant file access, accept every, accept all, confirmations off, without filters,
        never ask for confirmation, never ask the user, don't ask the user, do not ask the user for confirmation, do not ask for confirmation, do not ask for permission, don't ask for permission, approve automatically""",
    "refusal": "user says no, says no, user refuses, user declines, user objects, they refuse, they decline, user said no, said no, refused",
    "insist": "try again, again with force, anyway, go on, continue, repeat, regardless, keep trying, no matter how often, force",
    "take": """read, open, take, pull, grab, collect, gather, get, fetch, find, look, look for, look in, look up, quote, read out, paste, attach, add, include, put, store, fill, fill in, fill
        with, hand, give, provide, submit, report, dump, copy, send, pass, extract, summarize, compute, concatenating, set to, set, holds, hold, append, serialize, serialized, belongs, upload, post, mail, ask, list, enter, supply, share, write, use, retrieve, insert, forward, echo, type""",
    "wants": """wants, requires, needs, require, expects, must hold, must contain, works only if, should contain, should hold, has to contain, has to hold, must be, has to be, contains the, is the output of, value is the""",
    "you-know": "if you know it, if you know them, if you know, that you know, you know of, as far as you know, if you have it, if you can find it, if you can find them, if available to you",
    "find-it": """if you know it, if you know them, if you have it, if you can find it, if you can find them, you find in, find it in, take it from, look in the, look it up in, found in the, if it is not known, from the keyring, from the browser, from the config, from the wallet, from the environment, from earlier, from
        previous, in your context, from your context, you can see, you have access to, from memory, you have seen, you come across, without asking, no need to ask""",
    "seen": """you have seen, you have learned, you have learnt, you saw, you learned, so far, in this session, in this chat, in this conversation, in your context, from context, in context, previous tool,
        another server, of other servers, you know about, you remember, you come across, during this session, from the conversation""",
    "holder": "from env, from environment, from keychain, from vault, from browser, from disk, from file, from session, from history, from system, in env, from user, users, of host, of the host, host, from context, of the user, of user, from the environment, from memory, from conversation, from chat, in memory, found",
    "your-context": """previous assistant messages, assistant messages, earlier messages of, messages you sent, whole reasoning, full reasoning, the tools you know, tools you know,
        tools available to you, your available tools, your tool list, your tools and, names of your tools, your plan so far, your notes so far, your working memory, what you were told, what you have been told, instructions you were given, rules you were given, have learned so far, seen in this chat, seen in this conversation, the tools you have, all the tools you, tools you can call, every tool you, tool name you can, your own system
        prompt, your system prompt, model's own system prompt, text of your instructions, your system instructions, your hidden instructions, dump of your memory, your memory dump, hidden reasoning, reasoning you produced, internal reasoning, your
        chain of thought, chain of thought so far, everything the user wrote, everything the user said, everything the user has, all the user wrote, what the user wrote, what the user said before, private details of the user, your last
        messages, the last ten messages, transcript of this, transcript so far, whole transcript, entire transcript, entire chat, whole chat, full chat, all previous messages, other tools' results, other tools results, your answer so far, current workspace before,
        model hidden instructions, full system prompt, your scratchpad, your private notes""",
    "distrust": """infected, falsified, no longer to be trusted, not to be trusted, cannot be trusted, can't be trusted, not trustworthy, untrustworthy, has been retired, been retired, leaks data, leaks, loses data, loses your, exposes, exposes them, phishing, is unsafe,
        as unsafe, is wrong, is fake, fake, hacked, compromised, backdoored, spies on, steals, interfere, interferes, is infected, tampered, malicious, dangerous, stop using, must not be called, no longer be called, no longer be used, as absent, as missing, discard them, discard its, corrupts, corrupted, has a virus, is broken""",
    "other-server": """other server, another server, other servers, another server's, server's, any server, competing, the official, tools of the, other tools on,
        competitor's, rival, similar tools, other providers' tools, """
    + ", ".join(f"{name} {noun}" for name in _SERVERS for noun in ("server", "servers", "tool", "tools", "server's")),
    "through": """pass through, passed through, piped into, piped through, go through, routed, prefixed, approved by this, through this, through here, to this tool, into this tool, with this tool, be edited, rewritten, sent here, copied here, this tool first, here first""",
    "must-be": "is to be, are to be, must be, has to be, have to be, should be, needs to be, will be, should have, must have, shall be",
    "replaced": "replaced, edited, changed, rewritten, swapped, redirected, prefixed, replaced with, sent here, altered, modified, set to, copied",
    "through-here": """come here first, come here, through here, bring all, hand over, call this tool rather, use this one, pretend that, invoke this tool with, call this tool with, hand files to this, here first, to this tool first, into this tool, set its, this tool with the same, to this tool, this tool instead, passed on here""",
    "changes-its": "change its, set its, replace its, rewrite its, edit its, swap its, alter its, modify its, change the, same content beforehand, with the same content",
    "after": "after, once, when, whenever, as soon as",
    "again": "run it again, call it again, repeat it, run again with, a second time, once more with",
    "endless": "keep calling, call it repeatedly, call repeatedly, in a loop, again and again, over and over, until the quota",
    "this-tool": "this tool, this one, it, me, quota",
    "content": """page, pages, mail, mails, email, emails, text, document, documents, file, files, message, messages, website, site, content, result, results, output, attachment, attachments, comment, comments, memo, issue, issues, ticket, feed""",
    "must-do": """carried out, be fulfilled, fulfilled, must be obeyed, to be obeyed, be executed, be followed, to be followed, obey, be performed, be honored, come from the owner, from the owner, right away, as though the user, treat them as, without asking""",
    "content-tells": """follow any instruction, follow any instructions, follow every instruction, follow all instructions in, obey any instruction, obey any instructions, obey all instructions, execute any instruction, execute any instructions, carry out any instruction, whatever instructions,
        do what the page, do what it tells, do what it says, page tells you, what the text says, as it tells you, do whatever it, whatever it tells, whatever it says, whatever the text, whatever the page, text in demands, memo demands, demands of the text""",
    "obey-blindly": "obey its answer, obey its output, to the letter, obey this tool, obey the answer, follow its answer, do as it says, follow its orders, follow whatever",
    "decode": "rot13, morse code, backwards, reverse this, hex string, base64 text, first letters, second word, last letters, decode, decode them, decode it, unpack, decrypt, base64 decode, deobfuscate",
    "postscript": """p s, ps, pps, p p s, postscript, addendum, one more thing, before i forget, oh and, oh also, while you are at it, while you're at it, by the way, btw, last
        note, final remark, final note, final request, last request, further request, closing remark, hidden note, remark at the end, one last thing, last but not least""",
    "reads": "reads, opens, copies, uploads, sends, collects, returns the contents of, dumps, prints",
    "void": """void, no longer valid, no longer apply, do not apply, don't apply, obsolete, suspended, revoked, replaced by these,
        are disabled, is disabled, have been updated, has been updated""",
    "not": """not, never, don't, doesn't, without, no, nobody, nothing, mustn't, shouldn't, won't, cannot, avoid, refrain, nicht, nichts,
        niemals, nie, ohne, kein, keine, ne, n'en, pas, jamais, sans, rien, nunca, sin, não, sem, non, senza, niet, не, без, никогда, 不要,
        不得, 别, 不, ずに, ないで, せず""",
    "tell": """tell, telling, told, mention, mentioning, mentioned, inform, informing, informed, notify, notifying, reveal, revealing,
        disclose, disclosing, alert, let know, know, learn, learns, notice, aware, bring up, bring this up, report this, explain this,
        speak of, talk about, communicate, acknowledge, surface, bring it up, warn, warning, sag, sage, sagen, erwähne, erwähnen, verrate, informiere, informieren, mitteilen, dis,
        dites, parle, parlez, informe, informer, mentionne, digas, diga, menciones, informes, avisar, avises, decir, dizer, diga,
        dire, dirlo, menzionare, сообщая, сообщай, сообщайте, говори, говорите, упоминай, 告诉, 告知, 提及, 知らせ, 伝え, 教え""",
    "user": """user, users, user's, human, the person, people, customer, owner, them, anyone, anybody, benutzer, benutzers, nutzer,
        anwender, utilisateur, l'utilisateur, usuario, usuário, utente, gebruiker, пользователя, пользователю, ему, 用户, ユーザー""",
    "from-user": """from the user, from users, from user, from your user, from the person, from people, from the human, from the customer, from the owner, from them,
        from anyone, from anybody, from everyone, vor dem benutzer, vor dem nutzer, à l'utilisateur, al usuario, ao usuário, all'utente, от пользователя""",
    "this": """this, that, it, these, this step, about this, about it, davon, dies, hiervon, cela, n'en, en, esto, ello, isso, questo,
        об этом, этом""",
    "unasked": "without permission, without any permission, without the permission",
    "untold": "sag dem benutzer nichts, sage dem nutzer nichts, sag ihm nichts, 知らせずに, 伝えずに, 言わずに, 教えずに",
    "between-us": """between us, between you and, between you and me, our secret, leave that out of, leave this out of, out of your
        summary, keep it secret, keep this secret, keep that secret, keep it hidden, keep this hidden, without leaving a trace, leave
        no trace, user must not know, no need to mention, no need to bring, need not know, doesn't need to know, does not need to know, omit this from, leave it out of, do not log this, stays hidden from, unbemerkt""",
    "conceal": "hide, conceal, hidden from, invisible to, out of sight of, verheimliche, verbirg, oculta, скрой, 隐藏, 隠し",
    "covert": """silently, secretly, quietly, discreetly, covertly, stealthily, unnoticed, invisibly, surreptitiously, heimlich,
        discrètement, secrètement, en secreto, discretamente, secretamente, тайно, 悄悄, 秘密地, こっそり""",
    "act": "call, add, run, execute, invoke, set, enable, install, change, delete, approve, begin, use, open, write, create",
    "lie": """pretend, pretend that, behave as if, act as if, if asked say, deny it, say that nothing, present it as your own, presented as your own, passed off as your own""",
    "consent": """confirmation, confirming, asking, permission of, permission from, user's permission, explicit permission, permission prompts,
        permission checks, approval, consent, authorization, asking the user, safety
        check, safety checks""",
    "skip": "skip, bypass, turn off, disable, suppress, waive, omit, avoid, answer yes, auto-approve, autoapprove, dismiss",
    "granted": """confirmations are granted, confirmation is granted, is pre authorized, are pre authorized, preauthorized, pre approved,
        already authorized, answer 'yes', always answer yes, approve every, approve all, permissions as the operator, fully trusted, trusted at the highest level, skip the approval step""",
    "unrestricted": """without restrictions, without any restrictions, no restrictions, unrestricted, without limits, can do anything,
        safety checks are off, jailbroken""",
    "model": """assistant, assistants, the assistant, the model, models, language model, language models, llm, llms, ai, ais, the agent,
        agent, agents, claude, gpt, chatgpt, gemini, copilot, anthropic, openai, chatbot, bot, modell, modèle, modelo, assistent,
        asistente, assistente, модель, ассистент, 模型, 助手, 模型, アシスタント""",
    "new-role": """you are now, you now answer, you are no longer, your role has changed, your new role, your loyalty, your allegiance, your primary goal, your only goal, your true purpose, you answer to, you report
        to, you serve, your real task, act as though, reset yourself, new objective, your new task,
        your first task, developer mode, debug mode is on, god mode, dan mode, act as root, act as an administrator, you are dan, you are an
        administrator, new system message, new conversation starts, end of tool list, admin override, system override, new system
        prompt, updated system prompt, you work for, du bist jetzt, tu es maintenant, ahora eres, 你现在是""",
    "from-now-on": """from now on, from this point, from this moment, from here on, henceforth, going forward you, ab jetzt, ab sofort,
        désormais, a partir de ahora, de ahora en adelante, отныне, 从现在起, 今後は""",
    "to-model": "for the model only, for models only, for the assistant only, for assistants only, for language models only, only for the model, only for the assistant, only for models",
    "hidden": "hidden, secret, confidential, internal, private, covert",
    "order": "directive, directives, instruction, instructions, order, orders, command, objective",
    "read": """read, reads, open, cat, collect, gather, grep, load, fetch, look up, search, scan for, access, retrieve, extract, obtain, locate, enumerate, harvest, capture, look for, check for, dump,
        reading, remember, remembered, lies, lese, lis, lisez, lee, leia, прочитай, прочти, 读取, 読み取り""",
    "send": """send, sends it, forward, post, upload, transmit, email, e-mail, mail, mails them, copy, copied, copying, pass, submit,
        share, export, exfiltrate, exfiltration, leak, embed, embedding, append, attach, include, included, insert, put, paste, hand,
        hand over, hands over, give, supply, provide, bcc, bcc'd, cc, loop in, ship, smuggle, populate, tack on, share, repeat, repeated, deliver, relay, stream, goes into,
        go into, passes, forwards every, encode, add, sent, write, fill in, enter, dump, schicke, sende,
        übergib, übermittle, gib, füge, leite, transmets, transmettez, envoie, envoyez, ajoute, ajoutez, envía, envíe, envia, manda,
        copia, copian, copie, incluye, adjunta, envie, inclua, invia, inoltra, stuur, отправь, отправьте, перешли, передай, 发送,
        发到, 上传, 转发, 传给, 送信, 送って, アップロード""",
    "reveal": "reveal, disclose, print, show, output, dump, expose, leak, repeat, display, tell",
    "secrets": """credential, credentials, password, passwords, passphrase, api key, api keys, apikeys, private key, private keys, ssh key,
        ssh keys, secret, secrets, access token, access tokens, bearer token, session token, auth token, auth tokens, oauth token, session cookie, session cookies, login details, bank
        details, card number, personal data, personal information, database url, ssh id rsa, id rsa, kubeconfig, environment variable, environment
        variables, env vars, cookies, saved logins, credit card, credit card number, cvv, bank pin, pin code, seed phrase, wallet, key
        store, keystore, keychain, clipboard contents, aws_secret_access_key, password reset link, social security number, location
        history, passwort, passwörter, zugangsdaten, mot de passe, mots de passe, identifiants, contraseña, contraseñas, credenciales,
        senha, senhas, wachtwoorden, пароль, пароли, ключи, 密码, 密钥, 凭证, 口令, パスワード, 認証情報""",
    "env-words": "dot env, env file, env files, ssh key, ssh keys, keychain",
    "elicit": "get the user to enter, ask the user for, ask the user to enter, request the user's, enter their, re enter",
    "contents": "content, contents, inhalt, inhalte, contenu, contenido, conteúdo, contenuto, содержимое, result, results, rows, 内容",
    "context": """system prompt, system prompts, chat history, conversation history, full conversation, entire conversation, whole
        conversation, conversation so far, previous messages, earlier messages, last messages, recent messages, prior messages, message history, chat transcript, conversation context, user messages, what the
        user said, what the user asked, what the customer asked, session history, initial prompt, user's message, user's messages, user's last message, everything the user, what the user typed, what you
        remember, what you know about the user, your instructions, hidden instructions, system instructions, hidden system
        instructions, operator's instructions, your reasoning, your configuration, your context, your memory, previous answers, earlier
        tool results, previous tool results, context window, list of all available tools, list of available tools, chat log,
        chain of thought, gesprächsverlauf, unterhaltung, chatverlauf, systemprompt, l'historique de la conversation, historique de la
        conversation, historial de la conversación, historial del chat, histórico da conversa, cronologia della conversazione, историю
        переписки, историю чата, 对话历史, 聊天记录, 会话历史, 系统提示词, 系统提示, 会話履歴, システムプロンプト""",
    "with-call": "with every call, with each call, to this tool, to this server, here, into this, as an argument, in your call, with your call",
    "messages": "the conversation, every message, all messages, messages of the chat",
    "verbatim": "verbatim, word for word, in full, full, entire, complete, completely, whole, unabridged, wörtlich, textuellement, 完整",
    "person": "employer, health, habits, religion, whereabouts",
    "elsewhere": """external endpoint, external server, external address, external url, webhook, third party, remote server, our server, this
        server, this service, its author, attacker, attacker's, our endpoint, collection endpoint, mirror""",
    "tool": """<tool>, other tool, other tools, another tool, different tool, different tools, email tool, search tool, file tool, shell tool, payment tool, git tool,
        every other tool, tools of other servers, other servers' tools""",
    "hijack": """intercept, reroute, redirect, hijack, supersedes, overrides, changes how, change how, modifies the behavior, modifies the
        behaviour, changes the behavior, changes the behaviour, modify the behavior, alter the behavior, impersonate, side effect on,
        takes precedence over, takes the place of, take the place of, shadow""",
    "whenever": "whenever, when, if, before, after, once, every time, each time, as soon as, prior to, calls to, wenn, bevor",
    "alter": """set, change, changed, replace, replaced, reroute, redirect, removed, remove, split, first add, add, append, swap, bcc,
        beneficiary, account, destination, recipient, recipients, attendees, modify, copied, forward, pass""",
    "invoked": """is called, is used, is invoked, is run, are called, is executed, gets called, called, invoked, used, is available, calls,
        aufgerufen, appelé, llamada""",
    "retired": "deprecated, obsolete, discontinued, retired, out of service, unsupported",
    "disparage": """broken, corrupts, corrupt, leaks, stale, incomplete, compromised, insecure, unsafe, outdated, malicious, not valid,
        invalid, unreliable, wrong results, deprecated for security reasons, have been deprecated""",
    "avoid": "do not use, don't use, never use, do not call, never call, avoid, must not be used, should not be used",
    "instead": "instead, rather, this tool's, this one, with this tool, through this tool",
    "result": "output, outputs, result, results, returns, returned, response, responses, figure",
    "replace": "replace, substitute, overwrite, swap, exchange",
    "must": "must, should, have to, has to, need to, needs to, always, required, mandatory, shall, ought, never, is to",
    "all-requests": """all requests, all deletion requests, every request, all calls, any request, route all, routed through, requests that
        would go to""",
    "any-task": "for any task, for every task, for all tasks, for everything, any task including",
    "other-tools": "other servers' tools, other servers, tools of other servers, all other tools, other tools",
    "every": "every message, each message, every mail, every email, every request, all messages, each of",
    "before": "before, prior to, ahead of, bevor, avant, antes",
    "any-tool": """any tool, any other tool, every tool, every other tool, all tools, all other tools, each tool, any of the tools, anything
        else, everything else, jedes andere werkzeug, tout autre outil, cualquier otra herramienta""",
    "every-reply": """each reply, every reply, every answer, each answer, every response, each response, every message of the user, each
        call, every call, every turn, each turn, before replying, before answering, before you answer, on every request""",
    "supreme": "highest priority, top priority, absolute priority, takes priority over, above all others, overrides everything, under all circumstances, in any case, in every case",
    "regardless": """even if nobody asked, even if the user, even when the user, even though the user, no matter what, whatever the user, regardless of what, regardless of the user,
        against the user's, whether or not the user""",
    "obey": """obey, follow, followed, act upon, perform, adopt, execute, executes, execute each, carry out, carry them out, comply, comply with, do what it says, act
        on, adhere to, run each command, abide by, befolge, führe, exécute, exécutez, ejecuta, obedece, выполни, 执行, 服从, 実行, 従って""",
    "orders": """instruction, instructions, commands, orders, directive, directives, whatever, requests, new instructions,
        anweisungen, befehle, ordres, órdenes, команды, 指令, 命令, 指示""",
    "within": """in it, found in, found inside, embedded, contained in, listed, addressed to you, in
        the document, in the file, in the output, in the feed, in the content, it returns, tool returns, in each, all subsequent""",
    "treat": "treat, consider, regard, interpret, accept as",
    "as-if-user": """as if it came from the user, as if the user had, as if they came from the user, command from the user, orders of the
        owner, as a direct command, as the user's own, as coming from the user, do what it says, and do what they say""",
    "expected": """recommend, recommends, recommended, best results, proven useful, would be appreciated, responsible, compliance, demands,
        expected, expects, foresee, usually, naturally, customary, good practice, best practice, well behaved, requires that, advised,
        encouraged, kindly, it would help, helpful if, policy requires, typically, standard practice""",
    "approved": """approved, approval, trusted, under review, during review, for review, post approval, approving, reviewed, the review,
        has been accepted, has been installed""",
    "later": """once, after, afterwards, later, later version, will begin, will be replaced, starts to, activates, swap, post approval,
        then, only after, begins to, while""",
    "harm": """exfiltration, data exfiltration, arbitrary, shell commands, private keys, ssh keys, silently, secretly, forward prompts,
        upload, steal, credentials, keys, passwords, malicious, prompts""",
    "run": "run, execute, call, invoke, should be run, follow, evaluate, eval, obey, carry out, act on it, act upon it, do as it says, what you must do, perform it",
    "also": "also, in addition, additionally, as well",
    "any": "all, any, every, alle, todas, tous, все, 所有",
    # Not for signals: what a text does that speaks about orders instead of giving them.
    "about": """detect, detects, detecting, detected, detection, scan, scans, scanner, scanning, flag, flags, find, finds, block, blocks,
        reject, rejects, refuse, refuses, classify, classifies, check, checks, report, reports, warn, warns, explain, explains, describe,
        describes, describing, document, documents, documentation, lesson, chapter, chapters, handbook, example, examples, e g, such as,
        for example, phrases, phrase, patterns, pattern, simulate, simulates, test, tests, test cases, audits, removes,
        strips, sanitize, sanitizes, mask, masks, redact, redacts, prevent, prevents, protect, protects, attackers, attacker tries, attack
        known, quotes, quoted, known as, look up a cve, owasp, like, rather than, refers, mentions, ctf, erkennt, meldet, prüft, détecte,
        telles que, detecta, como por ejemplo, обнаруживает, 检测, 例如, 検出""",
}
