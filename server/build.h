// The build of this program. Records of one build are not for another build.

#ifndef FRMPS_SERVER_BUILD_H
#define FRMPS_SERVER_BUILD_H

#include <stdint.h>

/** Hash (protocol/hash.h) of this process's executable. Reads the file once. One thread.
 * Return: 0: the file cannot be read */
uint64_t build_hash(void);

#endif
