//! Everything that is written can be read again. T10.

use membership_core::encoding::encode_entry;
use membership_core::{
    CauseOfDeath, Death, Evidence, Extra, Heartbeat, HeartbeatWrite, InstanceId, MAX_SAFE_INTEGER,
    MembershipEntry, SiloAddress, SiloStatus, Suspicion, SuspicionReason, WallTime,
};

use crate::case::{Case, Cx, Verdict, case, commit, must, read};

pub(super) const CASES: &[Case] = &[
    case!(every_field_survives: T10),
    case!(unknown_fields_survive_a_rewrite: T10),
];

const TEXTS: &[&str] = &[
    "",
    "plain",
    "'\"`\\",
    "a\nb\tc\u{1}\r",
    "☃ 🦀 å a\u{30a} \u{202e}x",
    "%_*?[]{}$;--",
    "\u{feff}null",
    " ",
];

fn suspicion(cx: &Cx, n: u8) -> Suspicion {
    let mut evidence = Evidence::missed(u32::from(n) * 1_000_000, MAX_SAFE_INTEGER);
    evidence.last_answer = (n.is_multiple_of(3)).then(|| WallTime::from_millis(999));
    evidence.via = (n.is_multiple_of(2))
        .then(|| "[2001:db8::2]:1@5".parse().ok())
        .flatten();
    evidence.accuser_health = n % 9;
    evidence.stale = n % 2 == 1;
    Suspicion::new(
        cx.entry().address,
        WallTime::from_millis(1_763_000_000_000 + u64::from(n)),
        if n.is_multiple_of(2) {
            SuspicionReason::Silent
        } else {
            SuspicionReason::Stuck
        },
        evidence,
    )
}

/// Rows with one of everything: statuses, causes, texts, addresses, sizes.
fn one_of_each(cx: &Cx) -> Result<Vec<MembershipEntry>, crate::Stop> {
    let mut all = Vec::new();
    let death = |cause| Death::new(cause, WallTime::from_millis(253_402_300_799_999), None, 3);
    for status in SiloStatus::ALL
        .into_iter()
        .filter(|s| *s != SiloStatus::Created)
    {
        let mut e = cx.entry();
        e.status = status;
        e.death = (status == SiloStatus::Dead).then(|| death(CauseOfDeath::Left));
        all.push(e);
    }
    let evicted = |by: &str, reason: &str| CauseOfDeath::Evicted {
        by: by.to_owned(),
        reason: reason.to_owned(),
    };
    for cause in [
        CauseOfDeath::Voted,
        CauseOfDeath::Superseded,
        CauseOfDeath::Stuck,
        evicted("ops", "☃'\"%"),
        evicted("", ""),
    ] {
        let mut e = cx.entry();
        e.status = SiloStatus::Dead;
        let mut death = death(cause);
        death.by = Some(e.address);
        e.death = Some(death);
        e.active_since = Some(MAX_SAFE_INTEGER);
        e.active_at = Some(WallTime::from_millis(1_763_000_000_123));
        all.push(e);
    }
    for address in [
        "0.0.0.0:0@0",
        "255.255.255.255:65535@9007199254740992",
        "[::]:0@1",
        "[::1]:65535@9007199254740992",
        "[2001:db8::ff00:42:8329]:7100@1763000000000",
        "[fe80::1]:7100@2",
    ] {
        let address: SiloAddress = address.parse()?;
        let mut e = MembershipEntry::new(
            address,
            InstanceId::new(u128::MAX),
            WallTime::from_millis(1_763_000_000_123),
        );
        e.info.gateway_port = if address.port() == 0 { u16::MAX } else { 0 };
        e.suspicions = (0..24).map(|n| suspicion(cx, n)).collect();
        all.push(e);
    }
    for text in TEXTS {
        let mut e = cx.entry();
        for field in [
            &mut e.info.host_name,
            &mut e.info.silo_name,
            &mut e.info.role,
            &mut e.info.zone,
        ] {
            (*text).clone_into(field);
        }
        e.info.metadata.extend(
            TEXTS
                .iter()
                .map(|t| (format!("{t}{text}"), (*t).to_owned())),
        );
        all.push(e);
    }
    Ok(all)
}

async fn every_field_survives(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let other = cx.another(&table).await?;
    let mut token = read(&table).await?.0.token;
    let entries = one_of_each(&cx)?;
    for chunk in entries.chunks(table.limits().rows_per_commit.min(4)) {
        token = commit(&table, &cx.insert(&token, chunk.iter().cloned())).await?;
    }
    for rewritten in [false, true] {
        let now = read(&other).await?.0;
        must!(
            now.rows.len() == entries.len(),
            "{} rows were written, {} read",
            entries.len(),
            now.rows.len()
        );
        for due in &entries {
            let Some(got) = now.rows.get(&due.address) else {
                return Err(crate::Stop::failed(format!(
                    "{} cannot be read: {:?}",
                    due.address,
                    now.rows.by_key(&due.address.row_key())
                )));
            };
            let mut due = due.clone();
            due.written_at = got.written_at;
            must!(*got == due, "{due:?} reads as {got:?}");
            let one = other.read_row(&due.address, None).await?.row;
            must!(
                one.as_ref() == now.rows.row(&due.address),
                "read_row shows {one:?}, not {got:?}"
            );
            must!(
                one.is_some_and(|r| r.body() == encode_entry(&due)),
                "the text of {} was changed by the store",
                due.address
            );
        }
        if !rewritten {
            for chunk in entries.chunks(table.limits().rows_per_commit.min(4)) {
                token = commit(&other, &cx.update(&token, chunk.iter().cloned())).await?;
            }
        }
    }
    for (n, e) in entries.iter().enumerate() {
        let counter = if n == 0 { MAX_SAFE_INTEGER } else { n as u64 };
        let heartbeat = Heartbeat {
            counter,
            at: WallTime::from_millis(counter % 253_402_300_799_999),
        };
        table
            .update_i_am_alive(&HeartbeatWrite::Silo {
                silo: e.address,
                heartbeat,
            })
            .await?;
        if !cx.must_be_linearizable(&*table) {
            // After a read with a barrier this client reads nothing older.
            read(&other).await?;
        }
        let got = other.read_row(&e.address, None).await?.heartbeat;
        must!(
            got == Some(heartbeat),
            "the heartbeat {heartbeat} of {} reads as {got:?}",
            e.address
        );
    }
    Ok(())
}

async fn unknown_fields_survive_a_rewrite(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let mut entry = cx.entry();
    // JSON of a newer build, as this build keeps it.
    entry.extra = unknown_fields();
    entry.status = SiloStatus::Dead;
    let mut death = Death::new(CauseOfDeath::Voted, entry.start_time, None, 1);
    death.extra = unknown_fields();
    entry.death = Some(death);
    let mut suspicion = suspicion(&cx, 1);
    suspicion.extra = unknown_fields();
    entry.suspicions = vec![suspicion];
    let start = read(&table).await?.0;
    let mut request = cx.insert(&start.token, [entry.clone()]);
    let mut settings = start.version_row.settings.clone();
    settings.extra = unknown_fields();
    request.settings = Some(settings.clone());
    let mut token = commit(&table, &request).await?;
    for _ in 0..2 {
        let now = read(&cx.another(&table).await?).await?.0;
        let Some(got) = now.rows.get(&entry.address).cloned() else {
            return Err(crate::Stop::failed("the row cannot be read"));
        };
        let mut due = entry.clone();
        due.written_at = got.written_at;
        must!(got == due, "{entry:?} reads as {got:?}");
        must!(
            now.version_row.settings == settings,
            "unknown settings read as {:?}",
            now.version_row.settings
        );
        token = commit(&table, &cx.update(&token, [got])).await?;
    }
    Ok(())
}

fn unknown_fields() -> Extra {
    let mut extra = Extra::default();
    extra.0.insert("colour".to_owned(), "blue ☃ ' \" %".into());
    extra.0.insert(
        "deep".to_owned(),
        vec![vec![1_u64, MAX_SAFE_INTEGER], vec![]].into(),
    );
    extra
        .0
        .insert("maybe".to_owned(), Option::<bool>::None.into());
    extra
}
