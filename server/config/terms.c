// See terms.h.

#include "server/config/terms.h"

#include <errno.h>
#include <fnmatch.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/place.h"
#include "server/config/config.h"

static const struct {
	const char *key;
	size_t offset;
} rows[] = {
#define TERM(key) {#key, offsetof(struct terms, key)},
#include "server/config/terms.def"
#undef TERM
};
#define ROWS ((int)(sizeof(rows) / sizeof(*rows)))

static const char *const kinds[] = {
	[RULE_USER] = "user", [RULE_CGROUP] = "cgroup", [RULE_PROGRAM] = "program", [RULE_DEVICE] = "device"};

int term_find(const char *key)
{
	for (int i = 0; i < ROWS; i++)
		if (strcmp(rows[i].key, key) == 0)
			return i;
	return -1;
}

uint64_t *term_at(struct terms *terms, int index)
{
	return (uint64_t *)((char *)terms + rows[index].offset);
}

static bool matches(const struct rules *rules, const struct rule *rule, const struct subject *subject)
{
	switch (rule->kind) {
	case RULE_USER:
		return rule->uid == subject->uid;
	case RULE_CGROUP:
		return *subject->cgroup && !fnmatch(rule->text, subject->cgroup, FNM_NOESCAPE);
	case RULE_PROGRAM:
		return *subject->executable && !fnmatch(rule->text, subject->executable, FNM_NOESCAPE);
	case RULE_DEVICE:
		return rule->device == rules->device;
	}
	return false;
}

void terms_find(const struct rules *rules, const struct subject *subject, struct terms *ret_terms)
{
	*ret_terms = rules->general;
	for (uint32_t i = 0; i < rules->count; i++) {
		const struct rule *rule = &rules->rules[i];
		struct terms terms = rule->terms;

		if (!matches(rules, rule, subject))
			continue;
		for (int row = 0; row < ROWS; row++)
			if (rule->set >> row & 1)
				*term_at(ret_terms, row) = *term_at(&terms, row);
	}
}

void terms_of_user(const struct rules *rules, uid_t uid, struct terms *ret_terms)
{
	const struct subject subject = {.uid = uid};

	terms_find(rules, &subject, ret_terms);
}

void terms_of_device(const struct rules *rules, struct terms *ret_terms)
{
	/* find_user() accepts no such user. */
	terms_of_user(rules, (uid_t)-1, ret_terms);
}

uint64_t terms_lower(uint64_t left, uint64_t right)
{
	return left && (!right || left < right) ? left : right;
}

void terms_tighten(struct terms *terms, uint64_t memory_wish, uint64_t sm_wish, uint64_t class_wish)
{
	terms->class = class_wish > terms->class ? class_wish : terms->class;
	terms->sm_percent = terms_lower(sm_wish, terms->sm_percent);
	terms->memory_limit = terms_lower(memory_wish, terms->memory_limit);
	if (terms->memory_limit && terms->memory_guarantee > terms->memory_limit)
		terms->memory_guarantee = terms->memory_limit;
}

const char *terms_miss(const struct rules *rules, const struct subject *subject)
{
	for (uint32_t i = 0; i < rules->count; i++) {
		if (rules->rules[i].kind == RULE_CGROUP && !*subject->cgroup)
			return "the configuration has sections for control groups, and its control group "
			       "cannot be read";
		if (rules->rules[i].kind == RULE_PROGRAM && !*subject->executable)
			return "the configuration has sections for programs, and its executable cannot be "
			       "read";
	}
	return NULL;
}

void terms_describe(const struct rules *rules, const struct subject *subject, char *ret_text, size_t size)
{
	size_t used = 0;

	*ret_text = '\0';
	for (uint32_t i = 0; i < rules->count && used < size; i++) {
		const struct rule *rule = &rules->rules[i];

		if (matches(rules, rule, subject))
			used += (size_t)snprintf(ret_text + used, size - used, "%s[%s %s]", used ? " " : "",
				kinds[rule->kind], rule->text);
	}
}

/* Return: 0; ENOENT: there is no such user; or an errno: unknown */
static int find_user(const char *text, uid_t *ret_uid)
{
	const struct passwd *user;
	unsigned long number;
	char *end;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end) {
		*ret_uid = (uid_t)number;
		/* The kernel's calls use the last number for nobody. */
		return !errno && number < UINT32_MAX ? 0 : ENOENT;
	}
	errno = 0;
	user = getpwnam(text);
	*ret_uid = user ? user->pw_uid : 0;
	/* The C library may leave these where the user is not found. */
	if (!user && errno && errno != ENOENT && errno != ESRCH && errno != EBADF && errno != EPERM)
		return errno;
	return user ? 0 : ENOENT;
}

/* Return: whether the text is a device's number */
static bool find_device(const char *text, unsigned *ret_device)
{
	uint64_t number = 0;
	bool is_number = config_parse_number(text, false, &number) && number < PLACE_DEVICES;

	*ret_device = (unsigned)number;
	return is_number;
}

/* Return: NULL, or what is wrong */
static const char *check_value(struct rule *rule, const char *value)
{
	if (rule->kind == RULE_DEVICE)
		return find_device(value, &rule->device) ? NULL : "a device is a number below 64";
	return rule->kind == RULE_USER || *value == '/' || *value == '*' ? NULL : "a path begins with /";
}

static int find_kind(const char *name)
{
	for (int i = 0; i < (int)(sizeof(kinds) / sizeof(*kinds)); i++)
		if (strcmp(kinds[i], name) == 0)
			return i;
	return -1;
}

struct rule *rules_begin(struct rules *rules, char *header, char *ret_text, size_t size)
{
	const size_t length = strcspn(header, " \t");
	const char *value = header + length + strspn(header + length, " \t");
	struct rule *rule = &rules->rules[rules->count];
	const char *wrong;
	int kind, r;

	header[length] = '\0';
	kind = find_kind(header);
	if (rules->count == RULES_MAX) {
		snprintf(ret_text, size, "more than %u sections", RULES_MAX);
		return NULL;
	}
	if (kind < 0 || !*value) {
		snprintf(ret_text, size,
			"a section is [user NAME], [cgroup PATTERN], [program PATTERN] or [device NUMBER]");
		return NULL;
	}
	if (strlen(value) >= RULE_PATTERN_MAX) {
		snprintf(ret_text, size, "a section of more than %u bytes", RULE_PATTERN_MAX - 1);
		return NULL;
	}
	*rule = (struct rule){.kind = (enum rule_kind)kind};
	strcpy(rule->text, value);
	r = rule->kind == RULE_USER ? find_user(value, &rule->uid) : 0;
	if (r) {
		if (r == ENOENT)
			snprintf(ret_text, size, "there is no user %s", value);
		else
			snprintf(ret_text, size, "%s: the users cannot be asked for: %s", value, strerror(r));
		return NULL;
	}
	wrong = check_value(rule, value);
	if (wrong) {
		snprintf(ret_text, size, "%s: %s", value, wrong);
		return NULL;
	}
	rules->count++;
	return rule;
}
