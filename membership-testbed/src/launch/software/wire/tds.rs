//! SQL Server: a login.

use std::io::{self, Read, Write};

use super::wrong;

const LOGIN: u8 = 16;
const PRELOGIN: u8 = 18;
const LOGINACK: u8 = 0xad;

/// Logs in without encryption.
pub(in crate::launch::software) fn login(
    mut stream: impl Read + Write,
    user: &str,
    password: &str,
) -> io::Result<()> {
    // The version of the client, and that it does not encrypt.
    let hello = [0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff, 11, 0, 0, 0, 0, 0, 2];
    call(&mut stream, PRELOGIN, &hello)?;
    let answer = call(&mut stream, LOGIN, &request(user, password))?;
    if answer.contains(&LOGINACK) {
        return Ok(());
    }
    let units: Vec<u16> = answer
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect();
    let said: String = String::from_utf16_lossy(&units)
        .chars()
        .filter(|c| c.is_ascii_graphic() || *c == ' ')
        .collect();
    Err(wrong(format!("it refuses the login: {said}")))
}

/// The request of a login: a fixed part with the places of the texts, then the texts.
fn request(user: &str, password: &str) -> Vec<u8> {
    const FIXED: usize = 94;
    let units =
        |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let hidden = units(password)
        .into_iter()
        .map(|byte| byte.rotate_left(4) ^ 0xa5);
    // Host, user, password, program, server, nothing, library, language, database.
    let texts = [
        units("testbed"),
        units(user),
        hidden.collect(),
        units("testbed"),
        Vec::new(),
        Vec::new(),
        units("testbed"),
        Vec::new(),
        units("master"),
    ];
    let length = FIXED + texts.iter().map(Vec::len).sum::<usize>();
    let number = |n: usize| u32::try_from(n).unwrap_or(0).to_le_bytes();
    let short = |n: usize| u16::try_from(n).unwrap_or(0).to_le_bytes();
    let mut out = number(length).to_vec();
    // Version 7.4, packets of 4096 bytes, no version of a program, no process, no connection.
    out.extend([4, 0, 0, 0x74]);
    out.extend(number(4096));
    out.extend([0; 12]);
    // Flags, time zone, language.
    out.extend([0xe0, 3, 0, 0]);
    out.extend([0; 8]);
    let mut place = FIXED;
    for (n, text) in texts.iter().enumerate() {
        out.extend(short(place));
        out.extend(short(text.len() / 2));
        place += text.len();
        if n + 1 == texts.len() {
            // An address of this machine; no tickets, files or new passwords.
            out.extend([0; 6]);
            for _ in 0..3 {
                out.extend(short(place));
                out.extend(short(0));
            }
            out.extend([0; 4]);
        }
    }
    out.extend(texts.concat());
    out
}

/// Sends one packet; returns the answer's.
fn call(stream: &mut (impl Read + Write), kind: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    let length = u16::try_from(body.len() + 8)
        .unwrap_or(u16::MAX)
        .to_be_bytes();
    stream.write_all(&[kind, 1, length[0], length[1], 0, 0, 1, 0])?;
    stream.write_all(body)?;
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let mut answer = vec![0; length.saturating_sub(head.len())];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_are_where_the_request_says() {
        let request = request("sa", "p");
        assert_eq!(request.len(), usize::from(request[0]));
        let at = |n: usize| usize::from(u16::from_le_bytes([request[n], request[n + 1]]));
        let text = |n: usize| &request[at(n)..at(n) + 2 * at(n + 2)];
        assert_eq!(text(40), b"s\0a\0");
        assert_eq!(text(44), [b'p'.rotate_left(4) ^ 0xa5, 0xa5]);
        assert_eq!(text(68), b"m\0a\0s\0t\0e\0r\0");
    }
}
