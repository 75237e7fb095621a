// The terms on which a session is served. A key before the first section holds for everybody. A
// section narrows the set of programs:
//
//   [user NAME or NUMBER]   programs of a Unix user
//   [cgroup PATTERN]        programs in a control group, by its path below the root of the
//                           hierarchy
//   [program PATTERN]       programs whose executable has this path
//   [device NUMBER]         programs on one of the service's devices, by its place in `devices`.
//                           device_memory, the size of the device, may stand in such a section only
//
// swap_host_bytes, a user's, may stand in sections of users and of devices only.
//
// Patterns are those of the shell, but * matches a slash as well, and a backslash stands for
// itself: systemd's names have some. All sections that match apply, in the order of the file: where
// several set a key, the last holds. User, control group and executable come from the kernel, for
// the process that connected. But a user can copy an executable, and the owner of a control group
// (a container, a user's systemd) can make groups below, which a pattern without * at the end does
// not match. A limit on a user belongs into a section for that user.

#ifndef FRMPS_SERVER_CONFIG_TERMS_H
#define FRMPS_SERVER_CONFIG_TERMS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RULES_MAX	 100u
#define RULE_PATTERN_MAX 256u
#define SUBJECT_PATH_MAX 512u

/* The same for operators. */
#define TERMS_HELP                                                                                           \
	"Sections limit their keys to some programs: [user NAME or NUMBER], [cgroup PATTERN] by the path "   \
	"of the program's control group, [program PATTERN] by the path of its executable, [device NUMBER] "  \
	"by the place of its device in devices, from 0. Patterns are "                                       \
	"those of the shell, but * "                                                                         \
	"matches a slash as well, and a backslash stands for itself. "                                       \
	"All sections that match apply, in the order of the file: where several set a key, the "             \
	"last one holds. "                                                                                   \
	"The kernel identifies user, control group and executable. But a user can copy an executable, and "  \
	"the owner of a control group can make groups below, which a pattern without * at the end does not " \
	"match: a limit on a user belongs into a section for that user. frmpsctl reload has sections read "  \
	"again while programs run."

struct terms {
#define TERM(key) uint64_t key;
#include "server/config/terms.def"
#undef TERM
};

enum rule_kind { RULE_USER, RULE_CGROUP, RULE_PROGRAM, RULE_DEVICE };

/* A section. */
struct rule {
	enum rule_kind kind;
	uid_t uid;		     /* of RULE_USER */
	unsigned device;	     /* of RULE_DEVICE */
	char text[RULE_PATTERN_MAX]; /* as written, without the kind */
	uint32_t set;		     /* bit i: row i of terms.def is set */
	struct terms terms;
};

/* Everybody's terms, and the sections in the order of the file. */
struct rules {
	struct terms general;
	unsigned device; /* the one that is served, of the service's */
	uint32_t count;
	struct rule rules[RULES_MAX];
};

/** The subject of terms. An empty text is not known, and matches no section. */
struct subject {
	uid_t uid;
	char executable[SUBJECT_PATH_MAX], cgroup[SUBJECT_PATH_MAX];
};

/** Finds the terms of a subject. */
void terms_find(const struct rules *rules, const struct subject *subject, struct terms *ret_terms);
/** Finds the terms of a user, for a program that only sections of users and devices match. */
void terms_of_user(const struct rules *rules, uid_t uid, struct terms *ret_terms);
/** Finds the terms of the device for a program that no other section matches. */
void terms_of_device(const struct rules *rules, struct terms *ret_terms);

/** The lower of two limits; 0: none. */
uint64_t terms_lower(uint64_t left, uint64_t right);

/** Lowers the limit of device memory to the program's wish (bytes; 0: none), with the guarantee,
 * and the share of multiprocessors likewise (percent). An offline class is granted at the program's
 * wish (config.h). */
void terms_tighten(struct terms *terms, uint64_t memory_wish, uint64_t sm_wish, uint64_t class_wish);

/**
 * Finds unknown properties of the subject that sections depend on, so that nobody can tell if these
 * apply.
 * Return: NULL, or the name of the property (static text)
 */
const char *terms_miss(const struct rules *rules, const struct subject *subject);

/** The headers of the subject's sections, "[user 7] [cgroup /x]"; cut off without room. */
void terms_describe(const struct rules *rules, const struct subject *subject, char *ret_text, size_t size);

/**
 * Begins a section.
 * @header: the text between the brackets; changed
 * @ret_text: the error
 * Return: NULL on an error
 */
struct rule *rules_begin(struct rules *rules, char *header, char *ret_text, size_t size);

/** Row of terms.def with that key. Return: -1 if there is none */
int term_find(const char *key);
/** The value of a row. @index: of the row */
uint64_t *term_at(struct terms *terms, int index);

#endif
