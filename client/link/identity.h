// What this program is, as the service knows it again when it comes back as another process: the
// executable, and the script where the executable is an interpreter. A program can make itself
// another one in this way; the service uses the text for what concerns programs of the same user
// alone (Hello.identity). Runs on the thread that calls cuInit.

#ifndef FRMPS_CLIENT_LINK_IDENTITY_H
#define FRMPS_CLIENT_LINK_IDENTITY_H

#include <stddef.h>

#define IDENTITY_MAX 512u

/** Describes the calling process; an empty text where the system does not show what it runs. */
void identity_describe(char text[IDENTITY_MAX]);

/**
 * Describes a program: path of the executable, and behind a space the script, as a path if it is a
 * file. Of each the last 255 bytes count.
 * @arguments: of the program with the first, each ends with a NUL; @bytes: their length together
 */
void identity_of(const char *executable, const char *arguments, size_t bytes, char text[IDENTITY_MAX]);

#endif
