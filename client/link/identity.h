// What this program is, as the service knows it again when it comes back as another process: the
// executable, and the script where the executable is an interpreter. A program can make itself
// another one in this way; the service uses the text for what concerns programs of the same user
// alone (Hello.identity). Runs on the thread that calls cuInit.

#ifndef FRMPS_CLIENT_LINK_IDENTITY_H
#define FRMPS_CLIENT_LINK_IDENTITY_H

#include <stddef.h>

#define IDENTITY_MAX	  512u
#define IDENTITY_NAME_MAX 256u

struct identity {
	/* Path of the executable, and behind a space the script, as a path if it is a file. Of each
	 * the last 255 bytes count. */
	char text[IDENTITY_MAX];
	/* For people: how the program was called, and the script without its folder. */
	char name[IDENTITY_NAME_MAX];
};

/** Describes the calling process: by its name alone where the system does not show what it runs. */
void identity_describe(struct identity *ret_identity);

/**
 * Describes a program.
 * @executable: its path
 * @arguments: of the program with the first, each ends with a NUL; @bytes: their length together
 */
void identity_of(const char *executable, const char *arguments, size_t bytes, struct identity *ret_identity);

#endif
